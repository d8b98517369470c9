"""`lease-token`: what it prints, and how it fails."""

import base64
import hashlib
import io
import json
import time

import pytest
from django.core.management import ManagementUtility

from tenants_api import lease_token, tokens
from tests.tenants_api.vectors import ALICE, CAROL, KEYS, LEASE, MNEMONIC, VECTORS, vector


def as_script(*argv):
    return lease_token.main(argv)


def as_command(*argv):
    try:
        ManagementUtility(["manage.py", "lease_token", *argv]).execute()
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.fixture(params=[as_script, as_command])
def run(request, monkeypatch, capsys):
    """Run it both ways; return exit status, standard output and standard error."""

    def call(*argv, env=MNEMONIC, stdin=""):
        if env is None:
            monkeypatch.delenv("FRED_MNEMONIC", raising=False)
        else:
            monkeypatch.setenv("FRED_MNEMONIC", env)
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        try:
            status = request.param(*argv)
        except SystemExit as ended:
            status = ended.code
        out, err = capsys.readouterr()
        return status, out, err

    return call


WHO = ("-tenant", CAROL, "-lease-uuid", LEASE)


def test_ta115_the_token_is_that_of_the_vector(run):
    status, out, err = run(*WHO, "-timestamp", "1790000000")
    assert (status, err, out[-1]) == (0, "", "\n")
    text = base64.b64decode(out).decode()
    assert json.loads(text) == json.loads(vector("acc-04")["token_json"])
    assert list(json.loads(text)) == ["tenant", "lease_uuid", "timestamp", "pub_key", "signature"]


@pytest.mark.parametrize("stamp", [(), ("-timestamp", "0"), ("--timestamp=0",)])
def test_ta115_without_a_time_the_token_is_good_now(run, stamp):
    _, out, _ = run(*WHO, *stamp)
    assert tokens.access_token(out.strip(), prefix="manifest", now=time.time()).tenant == CAROL


def test_two_dashes_and_equals_signs_are_fine_too(run):
    status, out, _ = run(f"--tenant={CAROL}", f"-lease-uuid={LEASE}", "--timestamp", "1790000000")
    assert (status, json.loads(base64.b64decode(out))["timestamp"]) == (0, 1790000000)


def test_the_lease_is_taken_as_it_is(run):
    _, out, _ = run("-tenant", CAROL, "-lease-uuid", LEASE.upper())
    assert json.loads(base64.b64decode(out))["lease_uuid"] == LEASE.upper()


@pytest.mark.parametrize("text", ["whatever", LEASE[:-1], ""])
def test_what_is_no_uuid_is_refused(run, text):
    status, out, err = run("-tenant", CAROL, "-lease-uuid", text)
    assert (status, out) == (2, "")
    assert f"{text!r} is not a UUID" in err


def test_help_says_where_the_mnemonic_comes_from(run):
    status, out, _ = run("--help")
    assert status == 0
    assert "read from FRED_MNEMONIC or else from standard input" in " ".join(out.split())


def test_ta116_another_address(run):
    status, out, err = run("-tenant", ALICE, "-lease-uuid", LEASE)
    assert (status, out) == (1, "")
    assert err.startswith("lease-token: ")
    assert "does not match" in err
    assert ALICE in err
    assert CAROL in err


def test_ta116_the_mnemonic_of_standard_input_is_trimmed(run):
    assert run(*WHO, env=None, stdin=f"  {MNEMONIC}\n\n")[0] == 0


def test_ta116_the_environment_wins_over_standard_input(run):
    assert run(*WHO, env=f" {MNEMONIC} ", stdin="something else")[0] == 0


@pytest.mark.parametrize("env", [None, "", "  "])
def test_ta116_no_mnemonic(run, env):
    status, out, err = run(*WHO, env=env, stdin=" \n")
    assert (status, out) == (1, "")
    assert "no mnemonic provided" in err


def test_a_bad_mnemonic(run):
    status, out, err = run(*WHO, env="abandon about")
    assert (status, out) == (1, "")
    assert "derive key from mnemonic" in err


@pytest.mark.parametrize("argv", [(), ("-tenant", CAROL), ("-lease-uuid", LEASE)])
def test_missing_flags(run, argv):
    status, out, err = run(*argv)
    assert (status, out) == (1, "")
    assert err.startswith("usage:")
    assert "-tenant and -lease-uuid are required" in err


@pytest.mark.parametrize("argv", [("-nope",), (*WHO, "-timestamp", "now"), (*WHO, "-timestamp", "1.5")])
def test_bad_flags(run, argv):
    status, out, err = run(*argv)
    assert (status, out) == (2, "")
    assert err.startswith("usage:")


def test_a_payload_token(run, tmp_path):
    file = tmp_path / "payload"
    file.write_text(VECTORS["payload_text"])
    _, by_file, _ = run(*WHO, "--payload", str(file))
    token = tokens.payload_token(by_file.strip(), prefix="manifest", now=time.time())
    assert token.meta_hash == hashlib.sha256(VECTORS["payload_text"].encode()).digest()
    _, by_hash, _ = run(*WHO, "--meta-hash", token.meta_hash.hex().upper())
    assert tokens.payload_token(by_hash.strip(), prefix="manifest", now=time.time()).meta_hash == token.meta_hash


def test_faults_of_payload_tokens(run, tmp_path):
    assert run(*WHO, "--payload", str(tmp_path / "none"))[0] == 1
    assert run(*WHO, "--meta-hash", "xyz")[0] == 1
    assert run(*WHO, "--meta-hash", "00" * 32, "--payload", "x")[0] == 2


def test_another_prefix(run):
    tenant = KEYS["carol"]["address"]["wasm"]
    _, out, _ = run("-tenant", tenant, "-lease-uuid", LEASE, "--prefix", "wasm")
    assert tokens.access_token(out.strip(), prefix="wasm", now=time.time()).tenant == tenant


def test_the_mnemonic_is_never_printed(run):
    for argv in (WHO, ("-tenant", ALICE, "-lease-uuid", LEASE)):
        _, out, err = run(*argv)
        assert "abandon" not in out + err
