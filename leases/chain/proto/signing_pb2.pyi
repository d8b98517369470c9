from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class SignMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGN_MODE_UNSPECIFIED: _ClassVar[SignMode]
    SIGN_MODE_DIRECT: _ClassVar[SignMode]
    SIGN_MODE_TEXTUAL: _ClassVar[SignMode]
    SIGN_MODE_DIRECT_AUX: _ClassVar[SignMode]
    SIGN_MODE_LEGACY_AMINO_JSON: _ClassVar[SignMode]
SIGN_MODE_UNSPECIFIED: SignMode
SIGN_MODE_DIRECT: SignMode
SIGN_MODE_TEXTUAL: SignMode
SIGN_MODE_DIRECT_AUX: SignMode
SIGN_MODE_LEGACY_AMINO_JSON: SignMode
