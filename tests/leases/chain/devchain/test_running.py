"""Starting and stopping; block modes; the clock; how fast it is."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from fred.conf.arguments import parse_seconds
from leases.chain import devchain as simulated
from tests.devchain_fixture import Wallet
from tests.waiting import wait_until

ROOT = Path(__file__).parents[4]


def test_blocks_come_by_the_clock_and_stop_when_asked(manual_devchain):
    chain = manual_devchain
    chain.set_block_mode("interval", interval=0.02)
    start = chain.height
    wait_until(lambda: chain.height >= start + 3)
    chain.set_block_mode("manual")
    times = chain.call(lambda: [block.time for block in chain.node.chain.blocks.values() if block.height > start])
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 20_000_000
    height = chain.height
    chain.broadcast(Wallet.of(chain, "t0").ack(["01902a9b-1234-7000-8000-000000000001"]))
    assert chain.height == height


def test_an_instant_block_follows_a_transaction_and_nothing_else(devchain):
    uuid, height = devchain.create_lease(), devchain.height
    devchain.broadcast(Wallet.of(devchain, "provider").ack([uuid]))
    wait_until(lambda: devchain.state_of(uuid) == 2)
    assert devchain.height == height + 1


def test_time_moves_only_forward_and_never_stands_on_a_full_second(devchain):
    before = devchain.time_ns
    devchain.advance(3_600)
    devchain.produce_block()
    assert devchain.time_ns - before >= 3_600 * 10**9
    devchain.freeze_clock(1)
    devchain.produce_block(count=3)
    assert devchain.time_ns % 10**9


def test_two_chains_live_side_by_side():
    with simulated.run() as first, simulated.run(fixture="bare") as second:
        assert first.grpc != second.grpc
        assert first.provider_uuid
        assert not second.provider_uuid


def test_a_taken_port_is_an_error(devchain):
    for kind in ("grpc", "rpc", "rest", "admin"):
        port = int(getattr(devchain, kind).rsplit(":", 1)[1])
        with pytest.raises(OSError, match=str(port)):
            simulated.start(ports=simulated.Ports(**{kind: port}))


def test_ten_thousand_leases_are_made_and_a_hundred_acknowledged_in_one_block(manual_devchain):
    """Something quadratic would show in the time that tests take."""
    chain = manual_devchain
    uuids = chain.create_leases(10_000)
    assert len(set(uuids)) == 10_000
    wallet = Wallet.of(chain, "provider")
    chain.broadcast(wallet.ack(uuids[:100], gas=10_000_000))
    chain.produce_block()
    listing = chain.call(lambda: chain.node.chain.state.lease_uuids("provider", chain.provider_uuid, 1))
    assert listing == sorted(set(uuids) - set(uuids[:100]))


@pytest.mark.parametrize(("text", "expected"), [("1s", 1.0), ("100ms", 0.1), ("0.5", 0.5), ("2m", 120.0)])
def test_durations(text, expected):
    assert parse_seconds(text) == pytest.approx(expected)


def test_the_command_serves_answers_and_ends_on_sigterm(tmp_path):
    ready = tmp_path / "ready.json"
    flags = [f"--{name}-port=0" for name in ("grpc", "rpc", "rest", "admin")]
    command = [sys.executable, "manage.py", "devchain", *flags, f"--ready-file={ready}", "--block-interval=50ms"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: ready.exists() and ready.read_text().endswith("}"), timeout=60)
        info = json.loads(ready.read_text())
        port = info["admin"].rsplit(":", 1)[1]
        out = StringIO()
        call_command("devchain", "call", "POST", "lease", '{"count": 2}', f"--admin-port={port}", stdout=out)
        assert len(json.loads(out.getvalue())["lease_uuids"]) == 2
        with pytest.raises(CommandError, match="no route"):
            call_command("devchain", "call", "GET", "nothing", f"--admin-port={port}", stdout=out)
        process.send_signal(signal.SIGTERM)
        out_text, err_text = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err_text.decode()
    assert json.loads(out_text.splitlines()[0])["chain_id"] == "manifest-localnet"
