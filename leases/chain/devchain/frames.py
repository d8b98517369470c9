"""What subscribers get: one payload per block event and per transaction, encoded once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from leases.chain.devchain.blocks import CONSENSUS_HASH, EMPTY_HASH, PROPOSER, VALIDATORS_HASH, Block
from leases.chain.devchain.encoding import base64_text, event_json, hex_text, result_json, time_text
from leases.chain.devchain.query_language import event_values, tx_values
from leases.chain.devchain.transactions import TxResult


def block_id_json(block_hash: bytes) -> dict[str, Any]:
    """The id of a block; its one part has the hash of the hash."""
    if not block_hash:
        return {"hash": "", "parts": {"total": 0, "hash": ""}}
    return {"hash": hex_text(block_hash), "parts": {"total": 1, "hash": hex_text(block_hash[::-1])}}


def header_json(block: Block, chain_id: str) -> dict[str, Any]:
    """A block's header."""
    return {
        "version": {"block": "11"},
        "chain_id": chain_id,
        "height": str(block.height),
        "time": time_text(block.time),
        "last_block_id": block_id_json(block.last_hash),
        "last_commit_hash": hex_text(block.last_hash[::-1] or EMPTY_HASH),
        "data_hash": hex_text(block.data_hash),
        "validators_hash": hex_text(VALIDATORS_HASH),
        "next_validators_hash": hex_text(VALIDATORS_HASH),
        "consensus_hash": hex_text(CONSENSUS_HASH),
        "app_hash": hex_text(block.app_hash),
        "last_results_hash": hex_text(EMPTY_HASH),
        "evidence_hash": hex_text(EMPTY_HASH),
        "proposer_address": hex_text(PROPOSER),
    }


def commit_json(height: int, block_hash: bytes, time: int) -> dict[str, Any]:
    """The validator's signature under a block."""
    signature = {
        "block_id_flag": 2,
        "validator_address": hex_text(PROPOSER),
        "timestamp": time_text(time),
        "signature": base64_text(block_hash * 2),
    }
    signatures = [signature] if block_hash else []
    return {"height": str(height), "round": 0, "block_id": block_id_json(block_hash), "signatures": signatures}


def block_json(block: Block, chain_id: str) -> dict[str, Any]:
    """A whole block."""
    return {
        "header": header_json(block, chain_id),
        "data": {"txs": [base64_text(result.tx.raw) for result in block.txs]},
        "evidence": {"evidence": []},
        "last_commit": commit_json(block.height - 1, block.last_hash, block.time),
    }


CONSENSUS_PARAMS: dict[str, Any] = {
    "block": {"max_bytes": "22020096", "max_gas": "-1"},
    "evidence": {"max_age_num_blocks": "100000", "max_age_duration": "172800000000000", "max_bytes": "1048576"},
    "validator": {"pub_key_types": ["ed25519"]},
    "version": {},
    "abci": {},
}


def block_results_json(block: Block) -> dict[str, Any]:
    """What the transactions and the block itself did."""
    return {
        "height": str(block.height),
        "txs_results": [result_json(result) for result in block.txs] or None,
        "finalize_block_events": event_json(block.events),
        "validator_updates": None,
        "consensus_param_updates": CONSENSUS_PARAMS,
        "app_hash": base64_text(block.app_hash),
    }


def tx_value(result: TxResult) -> dict[str, Any]:
    """The value of a transaction's frame: members that are 0 or empty are left out."""
    execution = {name: value for name, value in result_json(result).items() if value not in (0, "", "0", None, [])}
    value: dict[str, Any] = {"height": str(result.height)}
    if result.index:
        value["index"] = result.index
    value["tx"] = base64_text(result.tx.raw)
    value["result"] = execution
    return {"TxResult": value}


@dataclass
class Publication:
    """One thing that happened: its attribute lists, and its encoded data."""

    kind: str
    values: dict[str, list[str]]
    make: Any

    @cached_property
    def data(self) -> bytes:
        """The member `data` of a frame."""
        return orjson.dumps({"type": f"tendermint/event/{self.kind}", "value": self.make()})

    @cached_property
    def events(self) -> bytes:
        """The member `events` of a frame."""
        return orjson.dumps(self.values)

    def frame(self, subscription_id: Any, query: str) -> bytes:
        """The whole frame for one subscription."""
        head = b'{"jsonrpc":"2.0","id":' + orjson.dumps(subscription_id) + b',"result":{"query":' + orjson.dumps(query)
        return head + b',"data":' + self.data + b',"events":' + self.events + b"}}"


def publications(block: Block, chain_id: str) -> Iterator[Publication]:
    """Everything a block publishes, in order: the block, its header, its events, its transactions."""
    values = event_values(block.events)
    yield Publication(
        "NewBlock",
        {"tm.event": ["NewBlock"], **values},
        lambda: {
            "block": block_json(block, chain_id),
            "block_id": block_id_json(block.hash),
            "result_finalize_block": {
                "events": event_json(block.events),
                "tx_results": [result_json(result) for result in block.txs] or None,
                "validator_updates": None,
                "app_hash": base64_text(block.app_hash),
            },
        },
    )
    yield Publication(
        "NewBlockHeader", {"tm.event": ["NewBlockHeader"]}, lambda: {"header": header_json(block, chain_id)}
    )
    yield Publication(
        "NewBlockEvents",
        {"tm.event": ["NewBlockEvents"], **values},
        lambda: {"height": str(block.height), "events": event_json(block.events), "num_txs": str(len(block.txs))},
    )
    for result in block.txs:
        yield Publication("Tx", tx_values(result), lambda result=result: tx_value(result))
