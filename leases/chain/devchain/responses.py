"""Answers of messages: decoded from a transaction's data, and as chain JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from leases.chain.proto import abci_pb2


def decode_responses(data: bytes) -> list[Message]:
    """The response of each message of a successful transaction."""
    responses = []
    for packed in abci_pb2.TxMsgData.FromString(data).msg_responses:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(packed.type_url.lstrip("/"))
        responses.append(message_factory.GetMessageClass(descriptor).FromString(packed.value))
    return responses


def as_json(message: Message) -> Any:
    """A message as the chain's JSON: proto names, default values shown, 64-bit numbers as strings."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
