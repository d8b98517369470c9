"""Answers of messages: decoded from a transaction's data, and as chain JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from leases.chain.proto import abci_pb2

STRANGE = b"\xfa\x3e\x03odd\x80\x3f\x01"
"""Two fields that no message has: number 1007, the bytes `odd`, and number 1008, the integer 1."""


def decode_responses(data: bytes) -> list[Message]:
    """The response of each message of a successful transaction."""
    responses = []
    for packed in abci_pb2.TxMsgData.FromString(data).msg_responses:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(packed.type_url.lstrip("/"))
        responses.append(message_factory.GetMessageClass(descriptor).FromString(packed.value))
    return responses


def classes_of(target: str) -> tuple[Message, type[Message]]:
    """An empty request and the class of the answer of a method, given as `/service/method`."""
    service, _, method = target.strip("/").partition("/")
    found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    request = message_factory.GetMessageClass(found.input_type)()
    return request, message_factory.GetMessageClass(found.output_type)


def with_unknown_fields(target: str, data: bytes) -> bytes:
    """An answer with strange fields in it and in every message inside it."""
    answer = classes_of(target)[1].FromString(data)
    _add_strange(answer)
    return answer.SerializeToString()


def _add_strange(message: Message) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                _add_strange(part)
    message.MergeFromString(STRANGE)


def as_json(message: Message) -> Any:
    """A message as the chain's JSON: proto names, default values shown, 64-bit numbers as strings."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
