import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from leases.chain.proto import pagination_pb2 as _pagination_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenericAuthorization(_message.Message):
    __slots__ = ("msg",)
    MSG_FIELD_NUMBER: _ClassVar[int]
    msg: str
    def __init__(self, msg: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("authorization", "expiration")
    AUTHORIZATION_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_FIELD_NUMBER: _ClassVar[int]
    authorization: _any_pb2.Any
    expiration: _timestamp_pb2.Timestamp
    def __init__(self, authorization: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., expiration: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GrantAuthorization(_message.Message):
    __slots__ = ("granter", "grantee", "authorization", "expiration")
    GRANTER_FIELD_NUMBER: _ClassVar[int]
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_FIELD_NUMBER: _ClassVar[int]
    granter: str
    grantee: str
    authorization: _any_pb2.Any
    expiration: _timestamp_pb2.Timestamp
    def __init__(self, granter: _Optional[str] = ..., grantee: _Optional[str] = ..., authorization: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., expiration: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class MsgGrant(_message.Message):
    __slots__ = ("granter", "grantee", "grant")
    GRANTER_FIELD_NUMBER: _ClassVar[int]
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    granter: str
    grantee: str
    grant: Grant
    def __init__(self, granter: _Optional[str] = ..., grantee: _Optional[str] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ...) -> None: ...

class MsgGrantResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MsgExec(_message.Message):
    __slots__ = ("grantee", "msgs")
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    MSGS_FIELD_NUMBER: _ClassVar[int]
    grantee: str
    msgs: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, grantee: _Optional[str] = ..., msgs: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class MsgExecResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, results: _Optional[_Iterable[bytes]] = ...) -> None: ...

class MsgRevoke(_message.Message):
    __slots__ = ("granter", "grantee", "msg_type_url")
    GRANTER_FIELD_NUMBER: _ClassVar[int]
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    MSG_TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    granter: str
    grantee: str
    msg_type_url: str
    def __init__(self, granter: _Optional[str] = ..., grantee: _Optional[str] = ..., msg_type_url: _Optional[str] = ...) -> None: ...

class MsgRevokeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EventGrant(_message.Message):
    __slots__ = ("msg_type_url", "granter", "grantee")
    MSG_TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    GRANTER_FIELD_NUMBER: _ClassVar[int]
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    msg_type_url: str
    granter: str
    grantee: str
    def __init__(self, msg_type_url: _Optional[str] = ..., granter: _Optional[str] = ..., grantee: _Optional[str] = ...) -> None: ...

class EventRevoke(_message.Message):
    __slots__ = ("msg_type_url", "granter", "grantee")
    MSG_TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    GRANTER_FIELD_NUMBER: _ClassVar[int]
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    msg_type_url: str
    granter: str
    grantee: str
    def __init__(self, msg_type_url: _Optional[str] = ..., granter: _Optional[str] = ..., grantee: _Optional[str] = ...) -> None: ...

class QueryGrantsRequest(_message.Message):
    __slots__ = ("granter", "grantee", "msg_type_url", "pagination")
    GRANTER_FIELD_NUMBER: _ClassVar[int]
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    MSG_TYPE_URL_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    granter: str
    grantee: str
    msg_type_url: str
    pagination: _pagination_pb2.PageRequest
    def __init__(self, granter: _Optional[str] = ..., grantee: _Optional[str] = ..., msg_type_url: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ...) -> None: ...

class QueryGrantsResponse(_message.Message):
    __slots__ = ("grants", "pagination")
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[Grant]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, grants: _Optional[_Iterable[_Union[Grant, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...

class QueryGranteeGrantsRequest(_message.Message):
    __slots__ = ("grantee", "pagination")
    GRANTEE_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    grantee: str
    pagination: _pagination_pb2.PageRequest
    def __init__(self, grantee: _Optional[str] = ..., pagination: _Optional[_Union[_pagination_pb2.PageRequest, _Mapping]] = ...) -> None: ...

class QueryGranteeGrantsResponse(_message.Message):
    __slots__ = ("grants", "pagination")
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    PAGINATION_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[GrantAuthorization]
    pagination: _pagination_pb2.PageResponse
    def __init__(self, grants: _Optional[_Iterable[_Union[GrantAuthorization, _Mapping]]] = ..., pagination: _Optional[_Union[_pagination_pb2.PageResponse, _Mapping]] = ...) -> None: ...
