"""`manage.py check_config`, as an operator runs it."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.fred.settings_of import SECRET, good, with_backends

ROOT = Path(__file__).resolve().parents[2]


def process(*arguments, variables):
    """A new Python with these arguments and, but for PATH, with nothing but these variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.fixture
def check_config(manage):
    """`check_config("--show", variables=good())`: run it with these options."""
    return partial(manage, "check_config")


def test_good_settings_say_so_in_one_line():
    done = process("manage.py", "check_config", variables=good())
    assert (done.returncode, done.stdout, done.stderr) == (0, "configuration is good\n", "")


def test_a_value_of_the_wrong_type_hides_nothing_else(check_config, tmp_path):
    """Every tree, TLS files and what only production refuses, beside what could not be read."""
    entries = [
        {"name": "a", "url": "ftp://x", "timeout": 30, "hmac_secret": "short"},
        {"name": "a", "url": "ftp://y", "default": "maybe"},
    ]
    variables = with_backends(
        *entries,
        FRED_DEBUG="yes",
        FRED_COLOUR="red",
        FRED_RETENTION_NEWS="0s",
        DATABASE_URL="mysql://x",
        REDIS_URL=None,
        DJANGO_SECRET_KEY="short",
        PROVIDER_PRODUCTION_MODE="true",
        PROVIDER_GAS_LIMIT="many",
        PROVIDER_KEY_NAME=None,
        PROVIDER_CALLBACK_BASE_URL="localhost:8080",
        PROVIDER_TLS_CERT_FILE=str(tmp_path / "c"),
        PROVIDER_TLS_KEY_FILE=str(tmp_path / "k"),
    )
    done = check_config(variables=variables)
    assert done.returncode == 1
    told = [line.removeprefix("failed to load config: config validation failed: ") for line in done.stderr.splitlines()]
    expected = [
        "key_name is required",
        "gas_limit: 'many' is not an integer",
        "backends[0].timeout: 30 has no unit",
        "backends[1].default: 'maybe' is not a boolean",
        "duplicate backend name: a",
        "backends[0].url: URL must use http:// or https:// scheme",
        "backends[1].url: URL must use http:// or https:// scheme",
        "backends: either every backend has an hmac_secret or none has",
        "backends[0].hmac_secret must be at least 32 characters",
        "callback_base_url: URL must use http:// or https:// scheme",
        "REDIS_URL is required",
        "DATABASE_URL must begin with postgres:// or postgresql://",
        "FRED_RETENTION_NEWS must be positive",
        "fred_debug: 'yes' is not a boolean",
        "production_mode: DJANGO_SECRET_KEY must be at least 50 characters",
        "failed to load TLS certificates",
        "unknown FRED_ variables are ignored: FRED_COLOUR",
    ]
    missing = [text for text in expected if not any(line.startswith(text) for line in told)]
    assert (missing, len(told)) == ([], len(expected)), done.stderr


def test_bad_settings_are_listed_whole_first_problem_first(check_config):
    done = check_config("--validate", variables=good(PROVIDER_PROVIDER_UUID=None, REDIS_URL=None))
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("failed to load config: config validation failed: provider_uuid is required")
    assert "REDIS_URL is required" in second


def test_tls_files_are_opened(check_config, tmp_path):
    done = check_config(
        variables=good(PROVIDER_TLS_CERT_FILE=str(tmp_path / "c"), PROVIDER_TLS_KEY_FILE=str(tmp_path / "k"))
    )
    assert done.returncode == 1
    assert "failed to load TLS certificates" in done.stderr


def test_a_ca_file_without_certificates_is_named_with_its_backend(check_config, tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text("nothing here", encoding="utf-8")
    done = check_config(variables=with_backends({"url": "https://b", "tls_ca_file": str(path)}))
    assert 'backend "docker-1": build TLS client config: no certificates found in' in done.stderr


def test_show_prints_every_value_and_its_source_but_no_secret(check_config, tmp_path):
    path = tmp_path / "provider.yaml"
    path.write_text("gas_limit: 7\n", encoding="utf-8")
    done = check_config("--show", "--config", str(path), variables=good())
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    assert shown["provider"]["gas_limit"] == {"value": 7, "source": "file"}
    assert shown["provider"]["key_name"] == {"value": "provider", "source": "env"}
    assert shown["provider"]["withdraw_interval"] == {"value": "1h0m0s", "source": "default"}
    assert shown["house"]["DATABASE_URL"]["value"] == "postgres://fred:[REDACTED]@db/fred"
    assert SECRET not in done.stdout
    assert "hunter2" not in done.stdout
    assert "k" * 50 not in done.stdout


@pytest.mark.parametrize("changed", [{"PROVIDER_GAS_LIMIT": "9"}, {"PROVIDER_CALLBACK_SECRET": SECRET[::-1]}])
def test_the_fingerprint_changes_with_any_setting(changed):
    from fred import conf
    from fred.conf.fingerprint import fingerprint

    one = fingerprint(conf.load_provider(good()).tree)
    assert one == fingerprint(conf.load_provider(good(PROVIDER_GAS_PRICE="25")).tree)
    assert one != fingerprint(conf.load_provider(good(**changed)).tree)


def test_key_ids_tell_keys_apart_and_not_what_they_are(check_config):
    variables = with_backends({"hmac_secret": SECRET, "hmac_secret_previous": "x" * 40})
    done = check_config("--print-hmac-key-ids", variables=variables)
    (backend,) = json.loads(done.stdout)["backends"]
    assert backend["name"] == "docker-1"
    assert backend["current_key_id"] == "a4651f6d303c"
    assert backend["previous_key_id"] != backend["current_key_id"]
    assert check_config("--hmac-key-id-of-stdin", variables={}, stdin=SECRET + "\n").stdout == "a4651f6d303c\n"


@pytest.mark.parametrize(
    ("changes", "event"),
    [
        ({"PROVIDER_GAS_ADJUSTMENT": "1.0"}, "gas_adjustment leaves no headroom: first attempts will run out of gas"),
        (
            {"PROVIDER_MAX_GAS_LIMIT": "2000000"},
            "max_gas_limit is small: large batches may be refused for ever while small ones pass",
        ),
        ({"PROVIDER_TOKEN_TRACKER_DB_PATH": "/x"}, "state is stored in Postgres: these keys change nothing"),
        (
            {"PROVIDER_PRODUCTION_MODE": "true"},
            "trusted_proxies is empty: all clients behind a proxy share one rate bucket",
        ),
        ({"PROVIDER_PRODUCTION_MODE": "true"}, "weaker than production_strict allows"),
        (
            {"PROVIDER_GRPC_TLS_ENABLED": "true", "PROVIDER_GRPC_TLS_SKIP_VERIFY": "true"},
            "insecure: chain TLS is not verified (grpc_tls_skip_verify)",
        ),
    ],
)
def test_the_unwise_is_warned_of_at_start(changes, event):
    from fred import conf
    from fred.conf.fingerprint import warnings_at_start

    loaded = conf.load(good(**changes), role=conf.Role.PROVIDER)
    assert event in [text for text, _ in warnings_at_start(loaded.provider.tree, loaded.house.tree)]


def test_plain_settings_warn_of_nothing():
    from fred import conf
    from fred.conf.fingerprint import warnings_at_start

    loaded = conf.load(good(), role=conf.Role.PROVIDER)
    assert list(warnings_at_start(loaded.provider.tree, loaded.house.tree)) == []


def test_a_server_with_bad_settings_ends_with_1_and_its_problems():
    done = process("-m", "celery", "-A", "fred", "worker", variables=good(PROVIDER_KEY_NAME=None))
    assert done.returncode == 1
    assert done.stderr.startswith("failed to load config: config validation failed: key_name is required")
