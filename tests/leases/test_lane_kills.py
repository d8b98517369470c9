"""Four sub-signers: all busy, each with its share; killed at any moment, nothing is done twice, no lane stays stuck."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.db.models import Count
from django.db.models.functions import Now

from leases import lanes
from leases.chain.devchain.keys import MNEMONIC_PROVIDER
from leases.chain.proto import billing_pb2
from leases.models import ChainAction, ChainTx, Signer
from leases.status import LeaseState
from tests.leases.house import action_states, environment_of, ours_on_chain, pending, states, want
from tests.leases.signers import (
    TOP_UP,
    address_of,
    balance,
    errands,
    grant,
    have_sub_signers,
    make_due,
    settle,
    signed_by,
    usable,
)
from tests.waiting import wait_until

ACTIVE, REJECTED = int(LeaseState.ACTIVE), int(LeaseState.REJECTED)
LANES = """
import django
django.setup()
from leases import lanes
import threading
for _ in range(2000):
    lanes.run()
    threading.Event().wait(0.01)
"""
LOOK_AFTER = """
import django
django.setup()
from leases import subsigners
subsigners.run_due()
"""


def run_in_child(house, code: str, point: str, *, count: int = 4) -> None:
    """Run this in a process that dies at a point."""
    environment = environment_of(
        house, FRED_CRASH_AT=point, FRED_MNEMONIC=MNEMONIC_PROVIDER, PROVIDER_SUB_SIGNER_COUNT=str(count)
    )
    child = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=django_settings.BASE_DIR,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    signed = list(ChainTx.objects.values_list("signer", "state", "kind"))
    lanes_now = list(
        Signer.objects.values_list("address", "usable", "due_at", "attempts", "errand_until", "last_error")
    )
    assert child.returncode == -signal.SIGKILL, f"{signed}\n{lanes_now}\n{child.stderr[-2000:]}"


def run_until_done() -> None:
    """Run lanes, all pauses over, until no action is open."""

    def is_done() -> bool:
        make_due()
        lanes.run()
        return not ChainAction.objects.filter(state__in=["queued", "in_tx"]).exists()

    wait_until(is_done)


def told(house) -> Counter[str]:
    """How often each lease was named in a transaction that took effect."""
    found: Counter[str] = Counter()
    for result in ours_on_chain(house):
        if result.code != 0:
            continue
        for _, message in result.tx.messages:
            for inner in getattr(message, "msgs", ()):
                kind = {"A": billing_pb2.MsgAcknowledgeLease, "R": billing_pb2.MsgRejectLease}.get(
                    inner.type_url.rpartition(".Msg")[2][0]
                )
                if kind is not None:
                    found.update(kind.FromString(inner.value).lease_uuids)
    return found


@pytest.mark.parametrize("number", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_each_of_four_takes_its_share_and_all_lanes_are_busy(house, settings, number):
    """LC-73: what waits goes in four transactions of one block."""
    have_sub_signers(settings, 4)
    settle()
    leases = pending(house, number)
    house.set_block_mode("manual")
    want("ack", leases)

    def all_are_out() -> bool:
        lanes.run()  # one run ends after its time, also on a machine on which four shares take longer
        return ChainTx.objects.filter(state="broadcast").count() == 4

    wait_until(all_are_out)
    shares = ChainTx.objects.filter(state="broadcast").annotate(leases=Count("chainaction"))
    assert {tx.signer_id: tx.leases for tx in shares} == {address_of(house, n): number // 4 for n in (1, 2, 3, 4)}
    assert not Signer.objects.filter(role="sub_signer", due_at__isnull=False).exists()
    house.produce_block()
    make_due()
    lanes.run()
    assert states(house, leases) == [ACTIVE] * number
    assert action_states() == {"done": number}
    assert set(told(house).values()) == {1}


def test_three_workers_with_four_signers_do_nothing_twice(house, settings, run_in_threads):
    """CH-59, LC-73"""
    have_sub_signers(settings, 4)
    settle()
    leases = pending(house, 300)
    want("ack", leases)

    def work() -> None:
        wait_until(lambda: not lanes.run() and not ChainAction.objects.filter(state__in=["queued", "in_tx"]).exists())

    run_in_threads(3, work)
    assert states(house, leases) == [ACTIVE] * 300
    assert told(house) == {str(uuid): 1 for uuid in leases}
    used = list(ChainTx.objects.values_list("signer", "sequence"))
    assert len(used) == len(set(used))
    assert not ChainTx.objects.filter(code=32).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    ["lane.before_sign", "lane.stored", "lane.broadcast", "lane.included_seen", "lane.recorded", "lane.stored:3"],
)
@pytest.mark.parametrize(("verb", "reached"), [("ack", ACTIVE), ("reject", REJECTED)])
def test_a_kill_with_four_lanes_does_nothing_twice_and_frees_every_lane(house, settings, point, verb, reached):
    """LC-72, CH-56: before signing, stored, broadcast, included, recorded."""
    have_sub_signers(settings, 4)
    settle()
    before = len(ours_on_chain(house))
    leases = pending(house, 120)
    want(verb, leases, reason="" if verb == "ack" else "callback timeout")
    run_in_child(house, LANES, point)
    held = ChainTx.objects.filter(kind=verb)
    hashes = {tx.tx_hash for tx in held}
    assert len(hashes) == held.values("signer").distinct().count()
    soon = Now() + timedelta(seconds=5.1)
    stuck = Signer.objects.filter(role="sub_signer").exclude(due_at__lt=soon)
    assert set(stuck.values_list("address", flat=True)) <= set(
        held.filter(state__in=["signed", "broadcast"]).values_list("signer", flat=True)
    )
    run_until_done()
    assert states(house, leases) == [reached] * 120
    assert told(house) == {str(uuid): 1 for uuid in leases}
    assert action_states() == {"done": 120}
    assert hashes <= {result.tx.hash for result in ours_on_chain(house)[before:]}
    assert not Signer.objects.filter(due_at__isnull=True).exists()
    assert usable() == [0, 1, 2, 3]
    assert sum(signed_by(house).values()) == len(ours_on_chain(house)) - before


@pytest.mark.slow
def test_a_kill_between_storing_a_top_up_and_sending_it_funds_once(house, settings):
    """CH-56, CH-57"""
    have_sub_signers(settings, 2)
    grant(house, 1, 2)
    run_in_child(house, LOOK_AFTER, "errand.stored", count=2)
    [tx] = ChainTx.objects.filter(kind="fund")
    assert tx.state == "signed"
    make_due()
    settle()
    assert [balance(house, n) for n in (1, 2)] == [TOP_UP] * 2
    assert [result.tx.hash for result in ours_on_chain(house)] == [tx.tx_hash]
    assert len(errands(house, "MsgSend")) == 1
    assert usable() == [0, 1]
