"""The chain's test vectors, read once; and chain JSON in both directions."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool, json_format, message_factory

from leases.chain.keys import SigningKey
from leases.chain.proto import (  # noqa: F401 - their classes are looked up by name
    abci_pb2,
    auth_pb2,
    authz_pb2,
    bank_pb2,
    billing_pb2,
    keyring_pb2,
    secp256k1_pb2,
    sku_pb2,
    tx_pb2,
)

FOLDER = Path(__file__).resolve().parents[3] / "fixtures" / "vectors"

PROVIDER = "manifest1hj5fveer5cjtn4wd6wstzugjfdxzl0xp8ws9ct"
TENANT = "manifest1efd63aw40lxf3n4mhf7dzhjkr453axurm6rp3z"
PROVIDER_UUID = "01902a9b-1234-7000-8000-000000000001"
LEASE_UUID = "01912345-6789-7abc-8def-0123456789ab"


@functools.cache
def chain() -> dict[str, Any]:
    return json.loads((FOLDER / "chain.json").read_text())


@functools.cache
def recording() -> dict[str, Any]:
    """What a real node of the ledger said."""
    return json.loads((FOLDER / "node-b.json").read_text())


def named(group: str) -> list[Any]:
    """The entries of a group as pytest parameters named after them."""
    return [pytest.param(entry, id=entry["name"]) for entry in chain()[group]]


def entry(group: str, name: str) -> dict[str, Any]:
    return next(entry for entry in chain()[group] if entry["name"] == name)


@functools.cache
def key(label: str) -> SigningKey:
    """`devnet_provider/0` → the key of that account of that mnemonic."""
    name, _, account = label.partition("/")
    [found] = [wallet for wallet in chain()["keys"] if wallet["label"] == name]
    return SigningKey.from_mnemonic(found["mnemonic"], int(account))


def message_class(full_name: str) -> Any:
    return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(full_name))


def to_json(message: Any) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def from_json(document: dict[str, Any], message: Any) -> Any:
    return json_format.ParseDict(document, message)
