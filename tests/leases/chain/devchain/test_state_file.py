"""Chains that outlive their process: snapshots, and the file a chain is kept in."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib import request as http

import pytest

from leases.chain import devchain as simulated
from leases.chain.devchain import state_file
from leases.chain.devchain.keys import PWR
from leases.chain.devchain.snapshot import take
from tests.devchain_fixture import Wallet
from tests.waiting import wait_until

ROOT = Path(__file__).parents[4]


def everything(chain):
    """The whole chain as JSON text, to be compared."""
    return chain.call(lambda: json.loads(json.dumps(take(chain.node.chain))))


def live_a_little(chain):
    """Leases in every state, a domain, a grant's worth of rows, a transaction that failed and one that waits."""
    uuids = chain.create_leases(6)
    chain.ack_leases(uuids[:3])
    chain.reject_leases(uuids[3:4], reason="full")
    chain.cancel_leases(uuids[4:5])
    chain.close_leases(uuids[:1], reason="done")
    chain.broadcast(Wallet.of(chain, "provider").ack(uuids[:1]))
    chain.produce_block()
    chain.mint(chain.keys["t1"].address, {PWR: 10**30})
    chain.broadcast(Wallet.of(chain, "provider").ack(uuids[5:]))
    return uuids


def test_a_snapshot_brings_everything_back(manual_devchain):
    chain = manual_devchain
    uuids = live_a_little(chain)
    before = everything(chain)
    snapshot = json.loads(json.dumps(chain.snapshot()))
    chain.produce_block(count=3)
    chain.close_leases(uuids[1:3])
    chain.set_profile("A")
    chain.restore(snapshot)
    assert everything(chain) == before
    chain.produce_block()
    assert chain.state_of(uuids[5]) == 2
    chain.close_leases(uuids[1:3])
    assert [chain.state_of(uuid) for uuid in uuids] == [3, 3, 3, 4, 4, 2]


def test_a_snapshot_of_another_chain_is_refused_and_changes_nothing(manual_devchain):
    before = everything(manual_devchain)
    other = {**manual_devchain.snapshot(), "chain_id": "elsewhere"}
    with pytest.raises(ValueError, match="the snapshot is of elsewhere"):
        manual_devchain.restore(other)
    with pytest.raises(ValueError, match="no snapshot of format"):
        manual_devchain.restore({"format": 7})
    assert everything(manual_devchain) == before


def test_a_restored_chain_finds_transactions_and_refuses_known_ones(manual_devchain):
    uuid = manual_devchain.create_lease()
    raw = Wallet.of(manual_devchain, "provider").ack([uuid])
    checked = manual_devchain.broadcast(raw)
    manual_devchain.produce_block()
    manual_devchain.restore(json.loads(json.dumps(manual_devchain.snapshot())))
    found = manual_devchain.call(lambda: manual_devchain.node.chain.find_tx(checked.hash))
    assert found is not None
    assert (found.tx.raw, found.code) == (raw, 0)
    assert manual_devchain.broadcast(raw).code == 19


# --- the file ----------------------------------------------------------------------


def kept(path, **options):
    return simulated.run(state=path, block_mode="manual", **options)


def test_a_chain_goes_on_where_its_file_ends(tmp_path):
    path = tmp_path / "folder" / "chain.state"
    with kept(path, profile="A", chain_id="kept-1") as chain:
        uuids = live_a_little(chain)
        before = everything(chain)
    with kept(path) as chain:
        assert everything(chain) == before
        assert chain.call(lambda: chain.node.chain.profile.name) == "A"
        chain.produce_block()
        assert chain.state_of(uuids[5]) == 2
        assert len(chain.create_leases(3)) == 3
    assert [one.name for one in path.parent.iterdir()] == ["chain.state"]


def test_a_file_is_good_after_every_block(tmp_path):
    """What a process that is killed leaves behind."""
    path, copy = tmp_path / "chain.state", tmp_path / "copy.state"
    with kept(path) as chain:
        uuids = live_a_little(chain)
        chain.produce_block()
        copy.write_bytes(path.read_bytes())
        before = everything(chain)
        chain.mint(chain.keys["t2"].address, {PWR: 1})
    with kept(copy) as chain:
        assert everything(chain) == before
        assert chain.state_of(uuids[5]) == 2


def test_a_torn_last_line_costs_one_block(tmp_path):
    path = tmp_path / "chain.state"
    with kept(path) as chain:
        first = chain.create_lease()
        height = chain.height
        chain.create_lease()
        whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with kept(path) as chain:
        assert chain.height == height
        assert list(chain.call(lambda: chain.node.chain.state.leases)) == [first]


@pytest.mark.parametrize("text", [b"", b"no json\n", b"{}\n", b"[]\n"])
def test_what_holds_no_chain_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "chain.state"
    path.write_bytes(text)
    with pytest.raises(ValueError, match="holds no saved chain"):
        simulated.start(state=path)
    assert path.read_bytes() == text


def test_the_file_of_another_chain_is_refused(tmp_path):
    path = tmp_path / "chain.state"
    with kept(path, chain_id="first-1"):
        pass
    with pytest.raises(ValueError, match="holds the chain first-1, not second-1"):
        simulated.start(state=path, chain_id="second-1")


def test_a_long_file_is_written_anew(tmp_path, monkeypatch):
    path = tmp_path / "chain.state"
    monkeypatch.setattr(state_file, "REWRITE_AFTER", 10_000)
    with kept(path) as chain:
        chain.node.chain.kept_blocks = 5
        chain.produce_block(count=50)
        assert len(path.read_bytes().splitlines()) < 20
        before = everything(chain)
    with kept(path) as chain:
        assert everything(chain) == before


def test_a_reset_is_kept_and_a_chain_exchanged_by_a_fault_is_not(tmp_path):
    path = tmp_path / "chain.state"
    with kept(path) as chain:
        uuid = chain.create_lease()
        chain.add_fault("reorg_reset")
        chain.produce_block(count=2)
        assert chain.provider_uuid == ""
        saved = path.read_bytes()
    (tmp_path / "copy").write_bytes(saved)
    with kept(tmp_path / "copy") as chain:
        assert chain.state_of(uuid) == 1
        chain.reset()
        chain.produce_block()
    with kept(tmp_path / "copy") as chain:
        assert (chain.height, chain.provider_uuid) == (2, "")


def test_a_killed_process_comes_back_with_all_its_blocks(tmp_path):
    path, ready = tmp_path / "chain.state", tmp_path / "ready.json"
    flags = [f"--{name}-port=0" for name in ("grpc", "rpc", "rest", "admin")]
    command = [sys.executable, "manage.py", "devchain", *flags, f"--state={path}", f"--ready-file={ready}"]
    process = subprocess.Popen([*command, "--block-interval=50ms"], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: ready.exists() and ready.read_text().endswith("}"), timeout=60)
        admin = json.loads(ready.read_text())["admin"]
        call = http.Request(f"{admin}/admin/lease", json.dumps({"count": 20}).encode())
        with http.urlopen(call, timeout=20) as answer:
            uuids = json.load(answer)["lease_uuids"]
        with http.urlopen(f"{admin}/admin/info", timeout=20) as answer:
            height = json.load(answer)["height"]
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    with kept(path) as chain:
        assert chain.height >= height - 1
        assert {chain.state_of(uuid) for uuid in uuids} == {1}
