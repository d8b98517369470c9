import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from leases.chain.proto import coin_pb2 as _coin_pb2
from leases.chain.proto import pagination_pb2 as _pagination_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LeaseState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEASE_STATE_UNSPECIFIED: _ClassVar[LeaseState]
    LEASE_STATE_PENDING: _ClassVar[LeaseState]
    LEASE_STATE_ACTIVE: _ClassVar[LeaseState]
    LEASE_STATE_CLOSED: _ClassVar[LeaseState]
    LEASE_STATE_REJECTED: _ClassVar[LeaseState]
    LEASE_STATE_EXPIRED: _ClassVar[LeaseState]
LEASE_STATE_UNSPECIFIED: LeaseState
LEASE_STATE_PENDING: LeaseState
LEASE_STATE_ACTIVE: LeaseState
LEASE_STATE_CLOSED: LeaseState
LEASE_STATE_REJECTED: LeaseState
LEASE_STATE_EXPIRED: LeaseState

class LeaseItem(_message.Message):
    __slots__ = ("sku_uuid", "quantity", "locked_price", "service_name", "custom_domain")
    SKU_UUID_FIELD_NUMBER: _ClassVar[int]
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    LOCKED_PRICE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    sku_uuid: str
    quantity: int
    locked_price: _coin_pb2.Coin
    service_name: str
    custom_domain: str
    def __init__(self, sku_uuid: _Optional[str] = ..., quantity: _Optional[int] = ..., locked_price: _Optional[_Union[_coin_pb2.Coin, _Mapping]] = ..., service_name: _Optional[str] = ..., custom_domain: _Optional[str] = ...) -> None: ...

class LeaseItemInput(_message.Message):
    __slots__ = ("sku_uuid", "quantity", "service_name")
    SKU_UUID_FIELD_NUMBER: _ClassVar[int]
    QUANTITY_FIELD_NUMBER: _ClassVar[int]
    SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    sku_uuid: str
    quantity: int
    service_name: str
    def __init__(self, sku_uuid: _Optional[str] = ..., quantity: _Optional[int] = ..., service_name: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("uuid", "tenant", "provider_uuid", "items", "state", "created_at", "closed_at", "last_settled_at", "acknowledged_at", "rejected_at", "rejection_reason", "expired_at", "closure_reason", "meta_hash", "min_lease_duration_at_creation")
    UUID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CLOSED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_SETTLED_AT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_AT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_AT_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_AT_FIELD_NUMBER: _ClassVar[int]
    CLOSURE_REASON_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    MIN_LEASE_DURATION_AT_CREATION_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    tenant: str
    provider_uuid: str
    items: _containers.RepeatedCompositeFieldContainer[LeaseItem]
    state: LeaseState
    created_at: _timestamp_pb2.Timestamp
    closed_at: _timestamp_pb2.Timestamp
    last_settled_at: _timestamp_pb2.Timestamp
    acknowledged_at: _timestamp_pb2.Timestamp
    rejected_at: _timestamp_pb2.Timestamp
    rejection_reason: str
    expired_at: _timestamp_pb2.Timestamp
    closure_reason: str
    meta_hash: bytes
    min_lease_duration_at_creation: int
    def __init__(self, uuid: _Optional[str] = ..., tenant: _Optional[str] = ..., provider_uuid: _Optional[str] = ..., items: _Optional[_Iterable[_Union[LeaseItem, _Mapping]]] = ..., state: _Optional[_Union[LeaseState, str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., closed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_settled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., acknowledged_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rejected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rejection_reason: _Optional[str] = ..., expired_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., closure_reason: _Optional[str] = ..., meta_hash: _Optional[bytes] = ..., min_lease_duration_at_creation: _Optional[int] = ...) -> None: ...

class CustomDomainTarget(_message.Message):
    __slots__ = ("lease_uuid", "service_name")
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    lease_uuid: str
    service_name: str
    def __init__(self, lease_uuid: _Optional[str] = ..., service_name: _Optional[str] = ...) -> None: ...

class CreditAccount(_message.Message):
    __slots__ = ("tenant", "credit_address", "active_lease_count", "pending_lease_count", "reserved_amounts")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CREDIT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_LEASE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PENDING_LEASE_COUNT_FIELD_NUMBER: _ClassVar[int]
    RESERVED_AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    credit_address: str
    active_lease_count: int
    pending_lease_count: int
    reserved_amounts: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    def __init__(self, tenant: _Optional[str] = ..., credit_address: _Optional[str] = ..., active_lease_count: _Optional[int] = ..., pending_lease_count: _Optional[int] = ..., reserved_amounts: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ...) -> None: ...

class Params(_message.Message):
    __slots__ = ("max_leases_per_tenant", "allowed_list", "max_items_per_lease", "min_lease_duration", "max_pending_leases_per_tenant", "pending_timeout", "reserved_domain_suffixes")
    MAX_LEASES_PER_TENANT_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_LIST_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_PER_LEASE_FIELD_NUMBER: _ClassVar[int]
    MIN_LEASE_DURATION_FIELD_NUMBER: _ClassVar[int]
    MAX_PENDING_LEASES_PER_TENANT_FIELD_NUMBER: _ClassVar[int]
    PENDING_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RESERVED_DOMAIN_SUFFIXES_FIELD_NUMBER: _ClassVar[int]
    max_leases_per_tenant: int
    allowed_list: _containers.RepeatedScalarFieldContainer[str]
    max_items_per_lease: int
    min_lease_duration: int
    max_pending_leases_per_tenant: int
    pending_timeout: int
    reserved_domain_suffixes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, max_leases_per_tenant: _Optional[int] = ..., allowed_list: _Optional[_Iterable[str]] = ..., max_items_per_lease: _Optional[int] = ..., min_lease_duration: _Optional[int] = ..., max_pending_leases_per_tenant: _Optional[int] = ..., pending_timeout: _Optional[int] = ..., reserved_domain_suffixes: _Optional[_Iterable[str]] = ...) -> None: ...

class GenesisState(_message.Message):
    __slots__ = ("params", "leases", "credit_accounts", "lease_sequence")
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    CREDIT_ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    params: Params
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    credit_accounts: _containers.RepeatedCompositeFieldContainer[CreditAccount]
    lease_sequence: int
    def __init__(self, params: _Optional[_Union[Params, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., credit_accounts: _Optional[_Iterable[_Union[CreditAccount, _Mapping]]] = ..., lease_sequence: _Optional[int] = ...) -> None: ...

class QueryParamsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueryParamsResponse(_message.Message):
    __slots__ = ("params",)
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    params: Params
    def __init__(self, params: _Optional[_Union[Params, _Mapping]] = ...) -> None: ...

class QueryLeaseRequest(_message.Message):
    __slots__ = ("lease_uuid",)
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    lease_uuid: str
    def __init__(self, lease_uuid: _Optional[str] = ...) -> None: ...

class QueryLeaseResponse(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class QueryLeasesRequest(_message.Message):
    __slots__ = ("pagination", "state_filter")
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FILTER_FIELD_NUMBER: _ClassVar[int]
    pagination: _pagination_pb2.PageRequest
    state_filter: LeaseState
    def __init__(self, pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., state_filter: _Optional[_Union[LeaseState, str]] = ...) -> None: ...

class QueryLeasesResponse(_message.Message):
    __slots__ = ("leases", "pagination")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryLeasesByTenantRequest(_message.Message):
    __slots__ = ("tenant", "pagination", "state_filter")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FILTER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    pagination: _pagination_pb2.PageRequest
    state_filter: LeaseState
    def __init__(self, tenant: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., state_filter: _Optional[_Union[LeaseState, str]] = ...) -> None: ...

class QueryLeasesByTenantResponse(_message.Message):
    __slots__ = ("leases", "pagination")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryLeasesByProviderRequest(_message.Message):
    __slots__ = ("provider_uuid", "pagination", "state_filter")
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FILTER_FIELD_NUMBER: _ClassVar[int]
    provider_uuid: str
    pagination: _pagination_pb2.PageRequest
    state_filter: LeaseState
    def __init__(self, provider_uuid: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., state_filter: _Optional[_Union[LeaseState, str]] = ...) -> None: ...

class QueryLeasesByProviderResponse(_message.Message):
    __slots__ = ("leases", "pagination")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryLeasesBySKURequest(_message.Message):
    __slots__ = ("sku_uuid", "pagination", "state_filter")
    SKU_UUID_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FILTER_FIELD_NUMBER: _ClassVar[int]
    sku_uuid: str
    pagination: _pagination_pb2.PageRequest
    state_filter: LeaseState
    def __init__(self, sku_uuid: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ..., state_filter: _Optional[_Union[LeaseState, str]] = ...) -> None: ...

class QueryLeasesBySKUResponse(_message.Message):
    __slots__ = ("leases", "pagination")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryCreditAccountRequest(_message.Message):
    __slots__ = ("tenant", "pagination")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    pagination: _pagination_pb2.PageRequest
    def __init__(self, tenant: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ...) -> None: ...

class QueryCreditAccountResponse(_message.Message):
    __slots__ = ("credit_account", "balances", "available_balances", "pagination")
    CREDIT_ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    BALANCES_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_BALANCES_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    credit_account: CreditAccount
    balances: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    available_balances: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, credit_account: _Optional[_Union[CreditAccount, _Mapping]] = ..., balances: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ..., available_balances: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryCreditAddressRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class QueryCreditAddressResponse(_message.Message):
    __slots__ = ("credit_address",)
    CREDIT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    credit_address: str
    def __init__(self, credit_address: _Optional[str] = ...) -> None: ...

class QueryCreditAccountsRequest(_message.Message):
    __slots__ = ("pagination",)
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    pagination: _pagination_pb2.PageRequest
    def __init__(self, pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ...) -> None: ...

class QueryCreditAccountsResponse(_message.Message):
    __slots__ = ("credit_accounts", "pagination")
    CREDIT_ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    credit_accounts: _containers.RepeatedCompositeFieldContainer[CreditAccount]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, credit_accounts: _Optional[_Iterable[_Union[CreditAccount, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryCreditEstimateRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class QueryCreditEstimateResponse(_message.Message):
    __slots__ = ("current_balance", "total_rate_per_second", "estimated_duration_seconds", "active_lease_count")
    CURRENT_BALANCE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RATE_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_LEASE_COUNT_FIELD_NUMBER: _ClassVar[int]
    current_balance: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    total_rate_per_second: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    estimated_duration_seconds: int
    active_lease_count: int
    def __init__(self, current_balance: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ..., total_rate_per_second: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ..., estimated_duration_seconds: _Optional[int] = ..., active_lease_count: _Optional[int] = ...) -> None: ...

class QueryWithdrawableAmountRequest(_message.Message):
    __slots__ = ("lease_uuid",)
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    lease_uuid: str
    def __init__(self, lease_uuid: _Optional[str] = ...) -> None: ...

class QueryWithdrawableAmountResponse(_message.Message):
    __slots__ = ("amounts",)
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    amounts: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    def __init__(self, amounts: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ...) -> None: ...

class QueryProviderWithdrawableRequest(_message.Message):
    __slots__ = ("provider_uuid", "limit", "pagination")
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    provider_uuid: str
    limit: int
    pagination: _pagination_pb2.PageRequest
    def __init__(self, provider_uuid: _Optional[str] = ..., limit: _Optional[int] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ...) -> None: ...

class QueryProviderWithdrawableResponse(_message.Message):
    __slots__ = ("amounts", "lease_count", "has_more", "pagination", "failed_lease_uuids")
    AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    LEASE_COUNT_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    FAILED_LEASE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    amounts: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    lease_count: int
    has_more: bool
    pagination: _pagination_pb2.PageResponse
    failed_lease_uuids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, amounts: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ..., lease_count: _Optional[int] = ..., has_more: _Optional[bool] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ..., failed_lease_uuids: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryLeaseByCustomDomainRequest(_message.Message):
    __slots__ = ("custom_domain",)
    CUSTOM_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    custom_domain: str
    def __init__(self, custom_domain: _Optional[str] = ...) -> None: ...

class QueryLeaseByCustomDomainResponse(_message.Message):
    __slots__ = ("lease", "service_name")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    service_name: str
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., service_name: _Optional[str] = ...) -> None: ...

class MsgFundCredit(_message.Message):
    __slots__ = ("sender", "tenant", "amount")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    sender: str
    tenant: str
    amount: _coin_pb2.Coin
    def __init__(self, sender: _Optional[str] = ..., tenant: _Optional[str] = ..., amount: _Optional[_Union[_coin_pb2.Coin, _Mapping]] = ...) -> None: ...

class MsgFundCreditResponse(_message.Message):
    __slots__ = ("credit_address", "new_balance")
    CREDIT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NEW_BALANCE_FIELD_NUMBER: _ClassVar[int]
    credit_address: str
    new_balance: _coin_pb2.Coin
    def __init__(self, credit_address: _Optional[str] = ..., new_balance: _Optional[_Union[_coin_pb2.Coin, _Mapping]] = ...) -> None: ...

class MsgCreateLease(_message.Message):
    __slots__ = ("tenant", "items", "meta_hash")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    items: _containers.RepeatedCompositeFieldContainer[LeaseItemInput]
    meta_hash: bytes
    def __init__(self, tenant: _Optional[str] = ..., items: _Optional[_Iterable[_Union[LeaseItemInput, _Mapping]]] = ..., meta_hash: _Optional[bytes] = ...) -> None: ...

class MsgCreateLeaseResponse(_message.Message):
    __slots__ = ("lease_uuid",)
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    lease_uuid: str
    def __init__(self, lease_uuid: _Optional[str] = ...) -> None: ...

class MsgCreateLeaseForTenant(_message.Message):
    __slots__ = ("authority", "tenant", "items", "meta_hash")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    META_HASH_FIELD_NUMBER: _ClassVar[int]
    authority: str
    tenant: str
    items: _containers.RepeatedCompositeFieldContainer[LeaseItemInput]
    meta_hash: bytes
    def __init__(self, authority: _Optional[str] = ..., tenant: _Optional[str] = ..., items: _Optional[_Iterable[_Union[LeaseItemInput, _Mapping]]] = ..., meta_hash: _Optional[bytes] = ...) -> None: ...

class MsgCreateLeaseForTenantResponse(_message.Message):
    __slots__ = ("lease_uuid",)
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    lease_uuid: str
    def __init__(self, lease_uuid: _Optional[str] = ...) -> None: ...

class MsgAcknowledgeLease(_message.Message):
    __slots__ = ("sender", "lease_uuids")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    sender: str
    lease_uuids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sender: _Optional[str] = ..., lease_uuids: _Optional[_Iterable[str]] = ...) -> None: ...

class MsgAcknowledgeLeaseResponse(_message.Message):
    __slots__ = ("acknowledged_at", "acknowledged_count")
    ACKNOWLEDGED_AT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    acknowledged_at: _timestamp_pb2.Timestamp
    acknowledged_count: int
    def __init__(self, acknowledged_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., acknowledged_count: _Optional[int] = ...) -> None: ...

class MsgRejectLease(_message.Message):
    __slots__ = ("sender", "lease_uuids", "reason")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sender: str
    lease_uuids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, sender: _Optional[str] = ..., lease_uuids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class MsgRejectLeaseResponse(_message.Message):
    __slots__ = ("rejected_at", "rejected_count")
    REJECTED_AT_FIELD_NUMBER: _ClassVar[int]
    REJECTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    rejected_at: _timestamp_pb2.Timestamp
    rejected_count: int
    def __init__(self, rejected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rejected_count: _Optional[int] = ...) -> None: ...

class MsgCancelLease(_message.Message):
    __slots__ = ("tenant", "lease_uuids")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    lease_uuids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., lease_uuids: _Optional[_Iterable[str]] = ...) -> None: ...

class MsgCancelLeaseResponse(_message.Message):
    __slots__ = ("cancelled_at", "cancelled_count")
    CANCELLED_AT_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    cancelled_at: _timestamp_pb2.Timestamp
    cancelled_count: int
    def __init__(self, cancelled_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cancelled_count: _Optional[int] = ...) -> None: ...

class MsgCloseLease(_message.Message):
    __slots__ = ("sender", "lease_uuids", "reason")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    sender: str
    lease_uuids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, sender: _Optional[str] = ..., lease_uuids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class MsgCloseLeaseResponse(_message.Message):
    __slots__ = ("closed_at", "closed_count", "total_settled_amounts")
    CLOSED_AT_FIELD_NUMBER: _ClassVar[int]
    CLOSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SETTLED_AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    closed_at: _timestamp_pb2.Timestamp
    closed_count: int
    total_settled_amounts: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    def __init__(self, closed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., closed_count: _Optional[int] = ..., total_settled_amounts: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ...) -> None: ...

class MsgWithdraw(_message.Message):
    __slots__ = ("sender", "lease_uuids", "provider_uuid", "limit", "key")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_UUID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    sender: str
    lease_uuids: _containers.RepeatedScalarFieldContainer[str]
    provider_uuid: str
    limit: int
    key: bytes
    def __init__(self, sender: _Optional[str] = ..., lease_uuids: _Optional[_Iterable[str]] = ..., provider_uuid: _Optional[str] = ..., limit: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class MsgWithdrawResponse(_message.Message):
    __slots__ = ("total_amounts", "payout_address", "withdrawal_count", "has_more", "next_key", "failed_lease_uuids")
    TOTAL_AMOUNTS_FIELD_NUMBER: _ClassVar[int]
    PAYOUT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_KEY_FIELD_NUMBER: _ClassVar[int]
    FAILED_LEASE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    total_amounts: _containers.RepeatedCompositeFieldContainer[_coin_pb2.Coin]
    payout_address: str
    withdrawal_count: int
    has_more: bool
    next_key: bytes
    failed_lease_uuids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, total_amounts: _Optional[_Iterable[_Union[_coin_pb2.Coin, _Mapping]]] = ..., payout_address: _Optional[str] = ..., withdrawal_count: _Optional[int] = ..., has_more: _Optional[bool] = ..., next_key: _Optional[bytes] = ..., failed_lease_uuids: _Optional[_Iterable[str]] = ...) -> None: ...

class MsgSetItemCustomDomain(_message.Message):
    __slots__ = ("sender", "lease_uuid", "service_name", "custom_domain")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UUID_FIELD_NUMBER: _ClassVar[int]
    SERVICE_NAME_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    sender: str
    lease_uuid: str
    service_name: str
    custom_domain: str
    def __init__(self, sender: _Optional[str] = ..., lease_uuid: _Optional[str] = ..., service_name: _Optional[str] = ..., custom_domain: _Optional[str] = ...) -> None: ...

class MsgSetItemCustomDomainResponse(_message.Message):
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
