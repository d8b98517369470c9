from __future__ import annotations

import pytest

from leases.chain.codes import Verdict, expected_sequence, simulated_failure, verdict, without_place
from tests.leases.chain import vectors

LEASE = vectors.LEASE_UUID
PLACE = " [example.com/ledger@v1.0.0/x/billing/errors.go:155] with gas used: '37098'"
EXECUTE = "failed to execute message; message index: 0: "


@pytest.mark.parametrize("case", vectors.chain()["sequence_hint"]["cases"], ids=lambda c: c["raw_log"][:60])
def test_the_expected_sequence_is_read_from_a_mismatch_only(case):
    """CH-34, CH-35, CH-36"""
    expected = None if case["expected"] is None else int(case["expected"])
    assert expected_sequence(case["codespace"], case["code"], case["raw_log"]) == expected


@pytest.mark.parametrize(
    ("codespace", "code", "expected"),
    [
        ("billing", 2, Verdict.FINISHED),
        ("billing", 3, Verdict.FINISHED),
        ("billing", 22, Verdict.FINISHED),
        ("billing", 34, Verdict.FINISHED),
        ("billing", 35, Verdict.NOT_NOW),
        ("billing", 6, Verdict.MISCONFIGURED),
        ("billing", 14, Verdict.MISCONFIGURED),
        ("sdk", 11, Verdict.GAS),
        ("sdk", 13, Verdict.FEE),
        ("sdk", 19, Verdict.IN_MEMPOOL),
        ("sdk", 20, Verdict.BUSY),
        ("sdk", 30, Verdict.DEAD),
        ("sdk", 32, Verdict.SEQUENCE),
        ("sdk", 5, Verdict.SIGNER),
        ("authz", 2, Verdict.SIGNER),
        ("sdk", 4, Verdict.PERMANENT),
        pytest.param("billing", 11, Verdict.PERMANENT, id="code 11 of another codespace is not out of gas"),
        pytest.param("billing", 32, Verdict.PERMANENT, id="code 32 of another codespace is no sequence"),
        pytest.param("unheard", 1, Verdict.PERMANENT, id="what nobody knows is permanent"),
    ],
)
def test_verdict(codespace, code, expected):
    assert verdict(codespace, code) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"{EXECUTE}lease {LEASE} is not in PENDING state: lease not in pending state{PLACE}",
            ("billing", 22),
            id="CH-33 a lease that has moved on",
        ),
        (f"{EXECUTE}lease {LEASE} not found: lease not found{PLACE}", ("billing", 2)),
        (f"{EXECUTE}lease {LEASE} is not active: lease not active{PLACE}", ("billing", 3)),
        (
            f"{EXECUTE}sender a is not authorized to acknowledge leases for provider b: unauthorized{PLACE}",
            ("billing", 6),
        ),
        (f"{EXECUTE}{EXECUTE}lease {LEASE} not found: lease not found{PLACE}", ("billing", 2)),
        (
            "account sequence mismatch, expected 7, got 5: incorrect account sequence [a.go:1] with gas used: '1174'",
            ("sdk", 32),
        ),
        ("something entirely new [x.go:1] with gas used: '1'", None),
        ("", None),
    ],
)
def test_a_failed_simulation_is_named_by_its_text(text, expected):
    failure = simulated_failure(text)
    assert (failure and (failure.codespace, failure.code)) == expected


def test_the_place_in_the_nodes_source_is_cut_off():
    assert without_place(f"lease not active{PLACE}") == "lease not active"
    assert without_place("lease [1] not active") == "lease [1] not active"


def test_texts_of_recorded_failures_are_named():
    """Texts of a real node: every failing simulation of the recording is one we know, or a form error."""
    texts = [
        call["details"]
        for call in vectors.recording()["grpc"]
        if call["method"].endswith("/Simulate") and call.get("code") == "UNKNOWN"
    ]
    assert texts
    for text in texts:
        assert without_place(text) != text
    assert any(simulated_failure(text) is not None for text in texts)
