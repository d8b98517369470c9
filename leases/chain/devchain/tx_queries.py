"""The transaction service: simulate, broadcast, find."""

from __future__ import annotations

from leases.chain.devchain.chain import Chain, SimulationFailed, View
from leases.chain.devchain.encoding import event_messages, tx_message, tx_response
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.messages import pack
from leases.chain.devchain.queries import Handler
from leases.chain.devchain.query_language import parse
from leases.chain.devchain.transactions import CheckResult
from leases.chain.proto import abci_pb2, tx_pb2

MAX_UINT64 = 2**64 - 1


def _simulate(chain: Chain, _view: View, request: bytes) -> bytes:
    query = tx_pb2.SimulateRequest.FromString(request)
    raw = query.tx_bytes or (query.tx.SerializeToString() if query.HasField("tx") else b"")
    if not raw:
        raise QueryRefused("INVALID_ARGUMENT", "empty txBytes is not allowed")
    try:
        found = chain.simulate(raw)
    except SimulationFailed as failure:
        raise QueryRefused("UNKNOWN", str(failure)) from None
    response = tx_pb2.SimulateResponse(
        result=abci_pb2.Result(
            data=found.data,
            events=event_messages(found.events, index=False),
            msg_responses=[pack(response) for response in found.responses],
        )
    )
    if chain.faults.find("gas_info_missing") is None:
        response.gas_info.gas_wanted = MAX_UINT64
        response.gas_info.gas_used = found.gas_used
    return response.SerializeToString()


def _broadcast(chain: Chain, _view: View, request: bytes) -> bytes:
    query = tx_pb2.BroadcastTxRequest.FromString(request)
    if query.mode not in (tx_pb2.BROADCAST_MODE_SYNC, tx_pb2.BROADCAST_MODE_ASYNC):
        wanted = "sync, async"
        raise QueryRefused("INVALID_ARGUMENT", f"unsupported return type {query.mode}; supported types: {wanted}")
    checked = chain.broadcast(query.tx_bytes)
    if query.mode == tx_pb2.BROADCAST_MODE_ASYNC:
        checked = CheckResult(checked.hash)
    response = abci_pb2.TxResponse(
        txhash=checked.hash, code=checked.code, codespace=checked.codespace, raw_log=checked.log
    )
    return tx_pb2.BroadcastTxResponse(tx_response=response).SerializeToString()


def _get_tx(chain: Chain, _view: View, request: bytes) -> bytes:
    tx_hash = tx_pb2.GetTxRequest.FromString(request).hash
    if not tx_hash:
        raise QueryRefused("INVALID_ARGUMENT", "tx hash cannot be empty")
    for character in tx_hash:
        if character not in "0123456789abcdefABCDEF":
            code = f"U+{ord(character):04X}"
            raise QueryRefused("UNKNOWN", f"encoding/hex: invalid byte: {code} '{character}'")
    if len(tx_hash) != 64:
        raise QueryRefused("INVALID_ARGUMENT", "The length of tx hash must be 64")
    result = chain.find_tx(tx_hash.upper())
    if result is None:
        raise QueryRefused("NOT_FOUND", f"tx not found: {tx_hash}")
    answer = tx_pb2.GetTxResponse(tx=tx_message(result.tx), tx_response=tx_response(result))
    return answer.SerializeToString()


def _txs_event(chain: Chain, _view: View, request: bytes) -> bytes:
    query = tx_pb2.GetTxsEventRequest.FromString(request)
    text = query.query or " AND ".join(query.events)
    try:
        condition = parse(text)
    except ValueError as error:
        raise QueryRefused("INVALID_ARGUMENT", str(error)) from None
    indexed = (result for tx_hash, result in chain.txs.items() if chain.find_tx(tx_hash))
    found = [result for result in indexed if condition.matches_tx(result)]
    if query.order_by == tx_pb2.ORDER_BY_DESC:
        found.reverse()
    limit = query.limit or 100
    start = ((query.page or 1) - 1) * limit
    part = found[start : start + limit]
    return tx_pb2.GetTxsEventResponse(
        txs=[tx_message(result.tx) for result in part],
        tx_responses=[tx_response(result) for result in part],
        total=len(found),
    ).SerializeToString()


HANDLERS: dict[str, Handler] = {
    "Simulate": _simulate,
    "BroadcastTx": _broadcast,
    "GetTx": _get_tx,
    "GetTxsEvent": _txs_event,
}
