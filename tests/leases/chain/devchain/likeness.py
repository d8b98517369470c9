"""Holding a play of the scenario against a recording of a real node.

What two runs on real nodes never share is masked: uuids, hashes, times, signatures, heights, and amounts that grow
with the seconds. Everything else must be the same, to the order of attributes; gas within 20 %.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from leases.chain.devchain.responses import as_json, classes_of, decode_responses
from leases.chain.proto import authz_pb2, billing_pb2

GAS_TOLERANCE = 0.2
_PATTERNS = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b[0-9A-F]{64}\b"), "<hash>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"account number \(\d+\)"), "account number (N)"),
    (re.compile(r"(block|blockchain) height:? \d+"), r"\1 height H"),
    (re.compile(r"gas ?[uU]sed: '?\d+'?"), "gas used N"),
    (re.compile(r"\[\S+\.go:\d+\]"), "[file]"),
    (re.compile(r"fee payer address: .* does not exist", re.DOTALL), "fee payer address: X does not exist"),
    (re.compile(r"\b[1-9]\d*(?=factory/)"), "N"),
)
_LIVE = frozenset({"signature", "duration_seconds"})
_LIVE_FIELDS = frozenset(
    (
        *("height", "tx_bytes", "gas_used", "timestamp", "signatures", "signature", "total", "hash", "app_hash"),
        *("default_node_id", "moniker", "build_tags", "build_deps", "version", "git_commit", "go_version"),
        *("estimated_duration_seconds", "balance"),
    )
)


class Masks:
    """Names for the ids of one run."""

    def __init__(self, run: dict[str, Any]) -> None:
        ids = run["ids"]
        named = [(ids["provider"], "<P>"), (ids["sku"], "<SKU>"), (ids["small"], "<SMALL>")]
        self._names = named + [(uuid, f"<L{index}>") for index, uuid in enumerate(ids["leases"])]

    def text(self, text: str) -> str:
        for value, name in self._names:
            text = text.replace(value, name)
        for pattern, name in _PATTERNS:
            text = pattern.sub(name, text)
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """A JSON value with everything live in it masked; of a live field only whether it is there."""
        if name == "next_key":
            return self.text(base64.b64decode(value).decode())
        if name in _LIVE_FIELDS and not isinstance(value, dict | list):
            return bool(value)
        if isinstance(value, dict):
            if value.get("denom", "").startswith("factory/"):
                return {"denom": value["denom"], "amount": value["amount"] == "0"}
            return {key: self.value(part, key) for key, part in value.items()}
        if isinstance(value, list):
            return [self.value(part, name) for part in value]
        return self.text(value) if isinstance(value, str) else value

    def events(self, events: list[dict[str, Any]]) -> list[Any]:
        shown = []
        for event in events:
            pairs = [(pair["key"], self._attribute(pair["key"], pair["value"] or "")) for pair in event["attributes"]]
            shown.append((event["type"], pairs, {pair.get("index", False) for pair in event["attributes"]}))
        return shown

    def _attribute(self, key: str, value: str) -> str:
        return "*" if key in _LIVE else self.text(value)

    def data(self, data: str | None) -> list[Any]:
        """The answers in a transaction's base64 data."""
        if not data:
            return []
        return [self._answer(message) for message in decode_responses(base64.b64decode(data))]

    def _answer(self, message: Message) -> tuple[str, Any]:
        if isinstance(message, authz_pb2.MsgExecResponse):
            # All that the scenario does for others answers with a time, a count and, for a close, amounts.
            inner = [billing_pb2.MsgCloseLeaseResponse.FromString(result) for result in message.results]
            return message.DESCRIPTOR.full_name, [self.value(as_json(one)) for one in inner]
        return message.DESCRIPTOR.full_name, self.value(as_json(message))


def _steps(run: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    masks = Masks(run)
    for step in run["steps"]:
        name = step["step"]
        for key in ("check_tx", "second"):
            answers = step.get(key, [])
            yield f"{name} {key}", masks.value(answers if isinstance(answers, list) else [answers])
        if "heights" in step:
            yield f"{name} blocks", len(set(step["heights"]))
        if "tx" in step:
            result = step["tx"]["tx_result"]
            shown = {key: masks.value(result[key], key) for key in result if key not in ("events", "data")}
            yield f"{name} result", shown
            yield f"{name} data", masks.data(result["data"])
            yield f"{name} events", masks.events(result["events"])


def _gas(run: dict[str, Any]) -> dict[str, int]:
    return {step["step"]: int(step["tx"]["tx_result"]["gas_used"]) for step in run["steps"] if "tx" in step}


def _calls(run: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    masks = Masks(run)
    for number, call in enumerate(run["grpc"]):
        name = f"gRPC {number} {call['method']}"
        if "code" in call:
            yield name, (call["code"], masks.text(call["details"]))
            continue
        answer = classes_of(call["method"])[1].FromString(bytes.fromhex(call["response"]))
        yield name, _shape(call["method"], as_json(answer), masks)
        yield f"{name} headers", sorted(header for header in call["headers"] if header.startswith("x-cosmos"))


def _shape(method: str, answer: dict[str, Any], masks: Masks) -> Any:
    if method.endswith("GetNodeInfo"):
        return "answers"  # the recordings hold no body of it
    if method.endswith("GetLatestBlock"):
        return sorted(_paths(answer["sdk_block"]["header"]))
    if method.endswith("Simulate"):
        answer["result"]["events"] = masks.events(answer["result"]["events"])
        answer["result"]["data"] = masks.data(answer["result"]["data"])
    if method.endswith("GetTx"):
        response = answer["tx_response"]
        response["events"] = masks.events(response["events"])
        response["data"] = bool(response["data"])
        answer["tx"]["auth_info"]["signer_infos"] = len(answer["tx"]["auth_info"]["signer_infos"])
        response["tx"]["auth_info"]["signer_infos"] = len(response["tx"]["auth_info"]["signer_infos"])
    return masks.value(answer)


def _rpcs(run: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    masks = Masks(run)
    for number, call in enumerate(run["rpc"]):
        name = f"RPC {number} {call['method']}"
        if "error" in call:
            yield name, masks.value(call["error"])
        elif call["method"] == "block_results":
            yield name, masks.events(call["result"]["finalize_block_events"])
        else:
            yield name, sorted(set(_paths(call["result"])))


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """Where in a JSON value something stands, and of which type it is; what a validator is called does not matter."""
    if isinstance(value, dict) and value:
        for key, part in value.items():
            if key not in ("validator_info", "events"):
                yield from _paths(part, f"{path}.{key}")
    elif isinstance(value, list) and value:
        yield from _paths(value[0], f"{path}[]")
    else:
        yield f"{path}:{type(value).__name__}"


def _frames(run: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    masks = Masks(run)
    for number in range(1, 7):
        for index, frame in enumerate([one for one in run["ws"] if one["id"] == number]):
            name = f"subscription {number} frame {index}"
            if "error" in frame or not frame["result"]:
                yield name, frame.get("error", "confirmed")
                continue
            result = frame["result"]
            value = result["data"]["value"]
            shape = sorted(value.get("TxResult", value)), sorted(value.get("TxResult", {}).get("result", {}))
            events = {
                key: [masks._attribute(key.rpartition(".")[2], text) for text in texts]
                for key, texts in result["events"].items()
                if key not in ("tx.height", "tx.acc_seq")
            }
            yield name, (masks.text(result["query"]), result["data"]["type"], shape, events)


def _second(run: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for frame in run["ws2"][:5]:
        yield f"second connection, answer {frame['id']}", frame.get("error", "confirmed")
    kinds = {
        (frame["id"], frame["result"]["data"]["type"], tuple(sorted(frame["result"]["data"]["value"])))
        for frame in run["ws2"][5:]
        if frame.get("result")
    }
    yield "second connection, frames", sorted(kinds)


def differences(recorded: dict[str, Any], played: dict[str, Any]) -> list[str]:
    """One text for each thing in which the play is not like the recording."""
    found = []
    for look in (_steps, _calls, _rpcs, _frames, _second):
        want, have = dict(look(recorded)), dict(look(played))
        found += [f"{name} is missing" for name in want.keys() - have.keys()]
        found += [f"{name} is too much" for name in have.keys() - want.keys()]
        for name in want.keys() & have.keys():
            if want[name] != have[name]:
                found.append(f"{name}:\n  want {want[name]}\n  have {have[name]}")
    gas = _gas(played)
    for name, want_gas in _gas(recorded).items():
        if abs(gas.get(name, 0) - want_gas) > GAS_TOLERANCE * want_gas:
            found.append(f"{name}: gas {gas.get(name)}, recorded {want_gas}")
    return sorted(found)
