"""Nouns and verbs of the command line, and what they reach."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from leases.chain.devchain.admin import Admin
from leases.chain.devchain.commandline import COMMANDS, BadCommand, call_of, listing


@pytest.fixture
def command(devchain):
    """`manage.py devchain WORDS …` against a running chain; the JSON it prints."""
    port = devchain.admin.rsplit(":", 1)[1]

    def run(*words, **options):
        out = StringIO()
        call_command("devchain", *words, f"--admin-port={port}", stdout=out, **options)
        text = out.getvalue()
        return json.loads(text) if text.strip() else None

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lease create t0 count=3", ("POST", "lease", {"tenant": "t0", "count": 3})),
        ("lease ack u1 u2 as=provider", ("POST", "leases/ack", {"lease_uuids": ["u1", "u2"], "as": "provider"})),
        (
            'lease create t0 payload={"image":"x"} count=2',
            ("POST", "lease", {"tenant": "t0", "payload": '{"image":"x"}', "count": 2}),
        ),
        ("lease create meta_hash=1234", ("POST", "lease", {"meta_hash": "1234"})),
        ("lease show u1", ("GET", "lease/u1", {"lease_uuid": "u1"})),
        ("lease state u1 9", ("POST", "lease/u1/state", {"lease_uuid": "u1", "state": 9})),
        ("faults remove 4", ("DELETE", "faults/4", {"id": 4})),
        ("clock freeze 2", ("POST", "clock", {"step": 2, "freeze": True})),
        (
            "faucet give t0 5umfx,7upwr",
            (
                "POST",
                "faucet",
                {"address": "t0", "coins": [{"denom": "umfx", "amount": "5"}, {"denom": "upwr", "amount": "7"}]},
            ),
        ),
        (
            'faults add hang where=*/Lease match={"nth":2}',
            ("POST", "faults", {"effect": "hang", "where": "*/Lease", "match": {"nth": 2}}),
        ),
    ],
)
def test_words_become_a_call(words, expected):
    assert call_of(words.split()) == expected


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("lease", "lease knows: create, show"),
        ("lease fly u1", "lease knows: create, show"),
        ("moon show", "known are info, keys, provider"),
        ("lease show", "lease show needs 'lease_uuid'"),
        ("info show now", "info show does not take now"),
        ("faucet give t0 umfx", "umfx is no amount"),
        ("sku create p name 1a,2b", "a price is one amount"),
    ],
)
def test_words_that_are_no_call(words, text):
    with pytest.raises(BadCommand, match=text):
        call_of(words.split())


def test_every_call_of_the_admin_api_has_its_words(devchain):
    reached = {(command.method, command.path) for command in COMMANDS.values()}
    routes = set(Admin(devchain.node)._routes)
    assert routes - reached == set()
    assert all(f"{noun} {verb}" in listing() for noun, verb in COMMANDS)


LEFT_OUT = {
    "lease create [TENANT]": ("lease create", "lease_uuids"),
    "credit drain TENANT [COINS]": ("credit drain t7 all=true", None),
    "mode set MODE [INTERVAL]": ("mode set instant", "mode"),
    "blocks make [COUNT] [STEP]": ("blocks make", "height"),
    "clock freeze [STEP]": ("clock freeze", None),
}


def test_what_may_be_left_out_stands_in_brackets_and_may_be(command, devchain):
    lines = [line.strip() for line in listing().splitlines()]
    assert [one for one in lines if "[" in one] == [one for one in lines if one.startswith(tuple(LEFT_OUT))]
    assert len([one for one in lines if one.startswith(tuple(LEFT_OUT))]) == len(LEFT_OUT)
    for words, answer in LEFT_OUT.values():
        found = command(*words.split())
        assert answer is None or answer in found
    command("clock", "run")
    assert "TENANT" not in call_of(["lease", "create"])[2]


def test_a_lease_lives_by_words_alone(command, devchain, tmp_path):
    info = command("info", "show")
    other = command("provider", "create", "t5", "https://other.example")["uuid"]
    sku = command("sku", "create", other, "tiny", "3600umfx")["uuid"]
    command("faucet", "give", "t6", "5000000umfx")
    command("credit", "fund", "t6", "4000000umfx")
    [uuid] = command("lease", "create", "t6", f"sku={sku}")["lease_uuids"]
    assert command("lease", "show", uuid)["provider_uuid"] == other != info["provider_uuid"]
    command("lease", "ack", uuid)
    command("lease", "domain", uuid, "a.example")
    assert command("lease", "show", uuid)["items"][0]["custom_domain"] == "a.example"
    whole = tmp_path / "chain.json"
    command("state", "snapshot", target=whole)
    command("lease", "close", uuid, "as=t6", "reason=done")
    assert command("lease", "show", uuid)["closure_reason"] == "done"
    command("state", "restore", source=whole)
    assert command("lease", "show", uuid)["state"] == "LEASE_STATE_ACTIVE"
    with pytest.raises(CommandError, match="not in PENDING state"):
        command("lease", "ack", uuid)
    assert command("profile", "set", "C") == {"profile": "C"}
    assert command("info", "show")["profile"] == "C"


def test_time_and_blocks_by_words(command, devchain):
    command("mode", "set", "manual")
    height = devchain.height
    assert command("blocks", "make", "2", "5")["height"] == height + 2
    command("clock", "set", "2031-05-06T07:08:09Z")
    command("blocks", "make")
    assert command("info", "show")["time"].startswith("2031-05-06T07:08:")
    assert command("clock", "freeze", "3")["frozen"] is True
    before = devchain.time_ns
    command("blocks", "make")
    assert 3 * 10**9 <= devchain.time_ns - before <= 3 * 10**9 + 1
    assert command("clock", "run")["frozen"] is False


def test_faults_and_records_by_words(command, ask, devchain):
    rule = command("faults", "add", "delay", "ms=1", "times=3")
    assert [one["id"] for one in command("faults", "list")] == [rule["id"]]
    command("faults", "remove", str(rule["id"]))
    command("faults", "add", "catching_up")
    command("faults", "clear")
    assert command("faults", "list") == []
    assert command("calls", "list")["counts"] == {}
    command("calls", "clear")
    assert {tx["code"] for tx in command("txs", "list")} == {0}
    assert command("mempool", "list") == []
    assert "params" in str(command("state", "show")["settings"])
    assert command("params", "set", "pending_timeout=77")["pending_timeout"] == 77
    command("state", "reset")
    assert devchain.height == 1


def test_an_unknown_word_is_a_command_error(command):
    with pytest.raises(CommandError, match="lease knows"):
        command("lease", "fly")
