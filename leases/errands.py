"""Errands: transactions of the provider's own key that no lease wished for. Grants, revocations, top-ups.

They go the way of every transaction: stored before they are sent, one open one per signer, decided by their hash. So
none is done twice because an answer or an index was late.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import structlog
from django.conf import settings
from google.protobuf.any_pb2 import Any as PackedAny

from fred import crash, due
from fred.due import Claim
from leases import inclusion, lane_sql, subsigner_sql, tx_sql
from leases.chain.client import ChainClient
from leases.chain.signer import Estimate, GasSource, Signer
from leases.chain.tx import SignedTx
from leases.lane_account import account_of
from leases.lane_draft import simulations
from leases.models import ChainTx
from leases.models import Signer as SignerRow
from leases.node import client, provider
from leases.pace import pace

log = structlog.get_logger("leases.errands")

WORK_SECONDS = 30.0
FEE_GAS = 30_000
"""A simulation leaves out what taking the fee costs; of a small transaction that is more than its adjustment adds."""
KEPT_SECONDS = 30.0
"""So long lanes leave the provider's key to an errand that found it busy."""


def send(kind: str, messages: Sequence[PackedAny], *, about: Sequence[Any], least_gas: int = 0) -> bool:
    """Sign and send these messages by the provider's key, as one transaction; `about` is stored to know it by.

    False when the key is busy: lanes leave it alone next time. What becomes of the transaction, its row tells. Raises
    `WouldFail` and `GasTooHigh` when the simulation shows that it cannot succeed, and `ChainError` otherwise; then
    nothing was sent.
    """
    signer = provider()
    claimed_at = time.monotonic()
    claimed = due.claim(
        SignerRow, 1, where="t.usable AND t.address = %s", params=[signer.address], also_set="errand_until = NULL"
    )
    if not claimed:
        subsigner_sql.keep_for_errand(signer.address, seconds=KEPT_SECONDS)
        return False
    free = claimed[0]
    with due.holding(SignerRow, {free.pk: free.epoch}, seconds=WORK_SECONDS + 5, claimed_at=claimed_at):
        try:
            return _send(free, signer, client(), kind, messages, about=about, least_gas=least_gas)
        finally:
            # Does nothing once the signer rests for its transaction: that raised its epoch.
            lane_sql.set_signer(free.pk, after=timedelta(), epoch=free.epoch)


def _send(
    free: Claim,
    signer: Signer,
    chain: ChainClient,
    kind: str,
    messages: Sequence[PackedAny],
    *,
    about: Sequence[Any],
    least_gas: int,
) -> bool:
    account, named = account_of(chain, signer.address)
    head = chain.latest_height()
    estimate = simulations.ask(signer, chain, messages, account=account)
    account = estimate.account if named is None else replace(estimate.account, sequence=named)
    config = settings.FRED
    signed = signer.sign(
        messages,
        account=account,
        gas_limit=max(least_gas, _gas(signer, estimate)),
        timeout_height=pace.timeout_height(chain, head, blocks=config.tx_timeout_blocks, timeout=config.tx_timeout),
    )
    stored_at = time.monotonic()
    claim = due.in_transaction(lambda: _store(free, signed, signer.address, kind, about))
    if claim is None:
        log.warning("errand.lost", signer=signer.address, kind=kind)
        return False
    crash.point("errand.stored")
    log.info("errand.sent", kind=kind, tx=signed.tx_hash, messages=len(messages))
    with due.holding(ChainTx, {claim.pk: claim.epoch}, seconds=inclusion.CALL_SECONDS, claimed_at=stored_at):
        for tx in tx_sql.read_open([claim]):
            inclusion.push(tx, chain, first=True, held_at=stored_at)
    return True


def _gas(signer: Signer, estimate: Estimate) -> int:
    """The gas of an estimate, with room for the fee where the cap leaves it."""
    if estimate.source is GasSource.FALLBACK:
        return estimate.gas_limit
    wanted = max(estimate.gas_limit, estimate.gas_used + FEE_GAS)
    return min(wanted, signer.gas.max_gas_limit) if signer.gas.max_gas_limit else wanted


def _store(free: Claim, signed: SignedTx, address: str, kind: str, about: Sequence[Any]) -> Claim | None:
    """Store the bytes if the signer is still ours; None otherwise."""
    if not lane_sql.occupy(free):
        return None
    return lane_sql.insert_tx(signed, signer=address, kind=kind, actions=(), about=about)
