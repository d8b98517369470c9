from leases.chain.proto import coin_pb2 as _coin_pb2
from leases.chain.proto import pagination_pb2 as _pagination_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Unit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNIT_UNSPECIFIED: _ClassVar[Unit]
    UNIT_PER_HOUR: _ClassVar[Unit]
    UNIT_PER_DAY: _ClassVar[Unit]
UNIT_UNSPECIFIED: Unit
UNIT_PER_HOUR: Unit
UNIT_PER_DAY: Unit

class Params(_message.Message):
    __slots__ = ("allowed_list",)
    ALLOWED_LIST_FIELD_NUMBER: _ClassVar[int]
    allowed_list: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, allowed_list: _Optional[_Iterable[str]] = ...) -> None: ...

class Provider(_message.Message):
    __slots__ = ("uuid", "address", "payout_address", "meta_hash", "active", "api_url")
    UUID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PAYOUT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    API_URL_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    address: str
    payout_address: str
    meta_hash: bytes
    active: bool
    api_url: str
    def __init__(self, uuid: _Optional[str] = ..., address: _Optional[str] = ..., payout_address: _Optional[str] = ..., meta_hash: _Optional[bytes] = ..., active: _Optional[bool] = ..., api_url: _Optional[str] = ...) -> None: ...

class SKU(_message.Message):
    __slots__ = ("uuid", "provider_uuid", "name", "unit", "base_price", "meta_hash", "active")
    UUID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    BASE_PRICE_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    provider_uuid: str
    name: str
    unit: Unit
    base_price: _coin_pb2.Coin
    meta_hash: bytes
    active: bool
    def __init__(self, uuid: _Optional[str] = ..., provider_uuid: _Optional[str] = ..., name: _Optional[str] = ..., unit: _Optional[_Union[Unit, str]] = ..., base_price: _Optional[_Union[_coin_pb2.Coin, _Mapping]] = ..., meta_hash: _Optional[bytes] = ..., active: _Optional[bool] = ...) -> None: ...

class QueryParamsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueryParamsResponse(_message.Message):
    __slots__ = ("params",)
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    params: Params
    def __init__(self, params: _Optional[_Union[Params, _Mapping]] = ...) -> None: ...

class QueryProviderRequest(_message.Message):
    __slots__ = ("uuid",)
    UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    def __init__(self, uuid: _Optional[str] = ...) -> None: ...

class QueryProviderResponse(_message.Message):
    __slots__ = ("provider",)
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    provider: Provider
    def __init__(self, provider: _Optional[_Union[Provider, _Mapping]] = ...) -> None: ...

class QueryProvidersRequest(_message.Message):
    __slots__ = ("pagination", "active_only")
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    pagination: _pagination_pb2.PageRequest
    active_only: bool
    def __init__(self, pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., active_only: _Optional[bool] = ...) -> None: ...

class QueryProvidersResponse(_message.Message):
    __slots__ = ("providers", "pagination")
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    providers: _containers.RepeatedCompositeFieldContainer[Provider]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, providers: _Optional[_Iterable[_Union[Provider, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QuerySKURequest(_message.Message):
    __slots__ = ("uuid",)
    UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    def __init__(self, uuid: _Optional[str] = ...) -> None: ...

class QuerySKUResponse(_message.Message):
    __slots__ = ("sku",)
    SKU_FIELD_NUMBER: _ClassVar[int]
    sku: SKU
    def __init__(self, sku: _Optional[_Union[SKU, _Mapping]] = ...) -> None: ...

class QuerySKUsRequest(_message.Message):
    __slots__ = ("pagination", "active_only")
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    pagination: _pagination_pb2.PageRequest
    active_only: bool
    def __init__(self, pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., active_only: _Optional[bool] = ...) -> None: ...

class QuerySKUsResponse(_message.Message):
    __slots__ = ("skus", "pagination")
    SKUS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    skus: _containers.RepeatedCompositeFieldContainer[SKU]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, skus: _Optional[_Iterable[_Union[SKU, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QuerySKUsByProviderRequest(_message.Message):
    __slots__ = ("provider_uuid", "pagination", "active_only")
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    provider_uuid: str
    pagination: _pagination_pb2.PageRequest
    active_only: bool
    def __init__(self, provider_uuid: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., active_only: _Optional[bool] = ...) -> None: ...

class QuerySKUsByProviderResponse(_message.Message):
    __slots__ = ("skus", "pagination")
    SKUS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    skus: _containers.RepeatedCompositeFieldContainer[SKU]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, skus: _Optional[_Iterable[_Union[SKU, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryProviderByAddressRequest(_message.Message):
    __slots__ = ("address", "pagination", "active_only")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ONLY_FIELD_NUMBER: _ClassVar[int]
    address: str
    pagination: _pagination_pb2.PageRequest
    active_only: bool
    def __init__(self, address: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., active_only: _Optional[bool] = ...) -> None: ...

class QueryProviderByAddressResponse(_message.Message):
    __slots__ = ("providers", "pagination")
    PROVIDERS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    providers: _containers.RepeatedCompositeFieldContainer[Provider]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, providers: _Optional[_Iterable[_Union[Provider, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class MsgCreateProvider(_message.Message):
    __slots__ = ("authority", "address", "payout_address", "meta_hash", "api_url")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PAYOUT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    API_URL_FIELD_NUMBER: _ClassVar[int]
    authority: str
    address: str
    payout_address: str
    meta_hash: bytes
    api_url: str
    def __init__(self, authority: _Optional[str] = ..., address: _Optional[str] = ..., payout_address: _Optional[str] = ..., meta_hash: _Optional[bytes] = ..., api_url: _Optional[str] = ...) -> None: ...

class MsgCreateProviderResponse(_message.Message):
    __slots__ = ("uuid",)
    UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    def __init__(self, uuid: _Optional[str] = ...) -> None: ...

class MsgUpdateProvider(_message.Message):
    __slots__ = ("authority", "uuid", "address", "payout_address", "meta_hash", "active", "api_url")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PAYOUT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    API_URL_FIELD_NUMBER: _ClassVar[int]
    authority: str
    uuid: str
    address: str
    payout_address: str
    meta_hash: bytes
    active: bool
    api_url: str
    def __init__(self, authority: _Optional[str] = ..., uuid: _Optional[str] = ..., address: _Optional[str] = ..., payout_address: _Optional[str] = ..., meta_hash: _Optional[bytes] = ..., active: _Optional[bool] = ..., api_url: _Optional[str] = ...) -> None: ...

class MsgUpdateProviderResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MsgDeactivateProvider(_message.Message):
    __slots__ = ("authority", "uuid", "limit")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    authority: str
    uuid: str
    limit: int
    def __init__(self, authority: _Optional[str] = ..., uuid: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class MsgDeactivateProviderResponse(_message.Message):
    __slots__ = ("deactivated_sku_count", "has_more")
    DEACTIVATED_SKU_COUNT_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    deactivated_sku_count: int
    has_more: bool
    def __init__(self, deactivated_sku_count: _Optional[int] = ..., has_more: _Optional[bool] = ...) -> None: ...

class MsgCreateSKU(_message.Message):
    __slots__ = ("authority", "provider_uuid", "name", "unit", "base_price", "meta_hash")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    BASE_PRICE_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    authority: str
    provider_uuid: str
    name: str
    unit: Unit
    base_price: _coin_pb2.Coin
    meta_hash: bytes
    def __init__(self, authority: _Optional[str] = ..., provider_uuid: _Optional[str] = ..., name: _Optional[str] = ..., unit: _Optional[_Union[Unit, str]] = ..., base_price: _Optional[_Union[_coin_pb2.Coin, _Mapping]] = ..., meta_hash: _Optional[bytes] = ...) -> None: ...

class MsgCreateSKUResponse(_message.Message):
    __slots__ = ("uuid",)
    UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    def __init__(self, uuid: _Optional[str] = ...) -> None: ...

class MsgUpdateSKU(_message.Message):
    __slots__ = ("authority", "uuid", "provider_uuid", "name", "unit", "base_price", "meta_hash", "active")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    BASE_PRICE_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    authority: str
    uuid: str
    provider_uuid: str
    name: str
    unit: Unit
    base_price: _coin_pb2.Coin
    meta_hash: bytes
    active: bool
    def __init__(self, authority: _Optional[str] = ..., uuid: _Optional[str] = ..., provider_uuid: _Optional[str] = ..., name: _Optional[str] = ..., unit: _Optional[_Union[Unit, str]] = ..., base_price: _Optional[_Union[_coin_pb2.Coin, _Mapping]] = ..., meta_hash: _Optional[bytes] = ..., active: _Optional[bool] = ...) -> None: ...

class MsgUpdateSKUResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MsgDeactivateSKU(_message.Message):
    __slots__ = ("authority", "uuid")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    authority: str
    uuid: str
    def __init__(self, authority: _Optional[str] = ..., uuid: _Optional[str] = ...) -> None: ...

class MsgDeactivateSKUResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MsgUpdateParams(_message.Message):
    __slots__ = ("authority", "params")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    authority: str
    params: Params
    def __init__(self, authority: _Optional[str] = ..., params: _Optional[_Union[Params, _Mapping]] = ...) -> None: ...

class MsgUpdateParamsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
