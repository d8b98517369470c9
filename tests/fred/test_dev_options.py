"""Options of `dev`, `bench` and `devchain`: what is senseless is refused at once, with what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import load_command_class
from django.core.management.base import CommandError

from fred.bench import api
from fred.bench import run as bench
from fred.conf.arguments import parse_seconds
from fred.dev.options import LONGEST_INTERVAL, MOST_LEASES
from leases.chain.devchain.genesis import TENANTS, build
from reconciliation.watcher import SILENT_SECONDS

APPS = {"dev": "fred", "bench": "fred", "devchain": "leases"}


def parsed(words: str, **places: object):
    """What a command makes of its command line; CommandError for what it refuses."""
    command, *rest = words.format(**places).split()
    parser = load_command_class(APPS[command], command).create_parser("manage.py", command)
    parser.called_from_command_line = False  # errors are raised, not printed
    return parser.parse_args(rest)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("dev --leases 0", "argument --leases: '0' is not a whole number from 1 to 1000, such as 25"),
        ("dev --leases 999999", "argument --leases: '999999' is not a whole number from 1 to 1000, such as 25"),
        ("dev --leases many", "argument --leases: 'many' is not a whole number from 1 to 1000, such as 25"),
        ("dev --leases 1.5", "argument --leases: '1.5' is not a whole number from 1 to 1000, such as 25"),
        (
            "dev --block-interval foo",
            "argument --block-interval: 'foo' is not a time from 10ms to 20s, such as 1s or 250ms",
        ),
        ("dev --block-interval 0", "argument --block-interval: '0' is not a time from 10ms to 20s"),
        ("dev --block-interval 30s", "argument --block-interval: '30s' is not a time from 10ms to 20s"),
        ("dev --block-interval=-1s", "argument --block-interval: '-1s' is not a time from 10ms to 20s"),
        ("dev --block-interval nan", "argument --block-interval: 'nan' is not a time from 10ms to 20s"),
        ("dev --wait 0", "argument --wait: '0' is not a time from 1s to 1h, such as 120 or 5m"),
        ("dev --wait inf", "argument --wait: 'inf' is not a time from 1s to 1h, such as 120 or 5m"),
        ("dev --api-port 65536", "argument --api-port: '65536' is not a port from 1 to 65535, such as 8080; 0 takes a"),
        ("dev --admin-port x", "argument --admin-port: 'x' is not a port from 1 to 65535, such as 8081"),
        ("dev --chain-rpc-port=-1", "argument --chain-rpc-port: '-1' is not a port from 1 to 65535, such as 26657"),
        ("dev --folder={file}", "argument --folder: '{file}' is not a folder; name one"),
        ("dev --folder=", "argument --folder: '' is not a folder; name one"),
        ("dev --parent 0", "argument --parent: '0' is not a whole number from 1 to"),
        (
            "bench burst --leases 20001",
            "argument --leases: '20001' is not a whole number from 1 to 20000, such as 1000",
        ),
        (
            "bench burst --blocks soon",
            "argument --blocks: 'soon' is neither instant nor a time from 1ms to 20s, such as 1s",
        ),
        ("bench burst --blocks 1d", "argument --blocks: '1d' is neither instant nor a time from 1ms to 20s"),
        ("bench burst --idle=-1", "argument --idle: '-1' is not a whole number from 0 to 1000, such as 10"),
        ("bench burst --warm-up 0", "argument --warm-up: '0' is not a whole number from 1 to 20000, such as 200"),
        ("bench burst --wait never", "argument --wait: 'never' is not a time from 1s to 24h, such as 300 or 10m"),
        ("bench burst --json={folder}", "argument --json: '{folder}' is not a file"),
        ("bench burst --json={folder}/no/report.json", "cannot be written: there is no folder {folder}/no"),
        ("bench callbacks --count 0", "argument --count: '0' is not a whole number from 1 to 1000000, such as 20000"),
        ("bench callbacks --connections 5000", "argument --connections: '5000' is not a whole number from 1 to 1000"),
        ("bench dispatch --count 1e6", "argument --count: '1e6' is not a whole number from 1 to 1000000"),
        ("bench api --route nowhere", "argument --route: invalid choice: 'nowhere'"),
        (
            "bench api --route status --connections 1 0",
            "argument --connections: '0' is not a whole number from 1 to 1000",
        ),
        ("bench api --route status --web 65", "argument --web: '65' is not a whole number from 1 to 64, such as 1"),
        ("bench marathon", "invalid choice: 'marathon'"),
        ("devchain --grpc-port 99999", "argument --grpc-port: '99999' is not a port from 1 to 65535, such as 9090"),
        ("devchain --block-interval foo", "argument --block-interval: 'foo' is not a time from 1ms to 1h"),
        ("devchain --block-interval 0s", "argument --block-interval: '0s' is not a time from 1ms to 1h"),
        ("devchain --block-gas-limit=-2", "argument --block-gas-limit: '-2' is not a whole number from -1 to"),
        (
            "devchain --min-gas-price 1/0",
            "argument --min-gas-price: '1/0' is not a number from 0 on, such as 0.001 or 1",
        ),
        ("devchain --min-gas-price=-1", "argument --min-gas-price: '-1' is not a number from 0 on"),
        ("devchain --mempool-size 0", "argument --mempool-size: '0' is not a whole number from 1 to"),
        ("devchain --keep-blocks few", "argument --keep-blocks: 'few' is not a whole number from 1 to"),
        ("devchain --state={folder}", "argument --state: '{folder}' is not a file"),
        ("devchain --ready-file={folder}/no/ready", "argument --ready-file: '{folder}/no/ready' cannot be written"),
        ("devchain state restore --in={folder}/none", "argument --in: '{folder}/none' is not a file that can be read"),
        ("devchain --genesis moon", "argument --genesis/--fixture: invalid choice: 'moon'"),
        ("devchain --block-mode never", "argument --block-mode: invalid choice: 'never'"),
        ("devchain --profile D", "argument --profile: invalid choice: 'D'"),
    ],
)
def test_what_is_senseless_is_refused_at_once_by_its_option(words, told, tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CommandError) as refused:
        parsed(words, file=file, folder=tmp_path)
    assert told.format(file=file, folder=tmp_path) in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        "dev --folder={file}",
        "bench burst --json={file}",
        "devchain --ready-file={file}",
        "devchain --state={file}",
        "devchain state restore --in={file}",
    ],
)
def test_where_this_user_may_not_look_is_said_so(words, tmp_path, monkeypatch):
    file = tmp_path / "closed"
    stat = Path.stat

    def refuse(path, **how):
        if path == file:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(CommandError, match=f"'{file}' cannot be looked at by this user"):
        parsed(words, file=file, folder=tmp_path)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("dev --leases 1000", "leases", 1000),
        ("dev --block-interval 250ms", "block_interval", 0.25),
        ("dev --block-interval 0.5", "block_interval", 0.5),
        ("dev --wait 5m", "wait", 300.0),
        ("dev --wait 90", "wait", 90.0),
        ("dev --api-port 0", "api_port", 0),
        ("bench burst --blocks 500ms", "blocks", "500ms"),
        ("bench burst --idle 0", "idle", 0),
        ("bench api --route status --connections 1 1000", "connections", [1, 1000]),
        ("devchain --block-gas-limit -1", "block_gas_limit", -1),
        ("devchain --min-gas-price 1/4", "min_gas_price", 0.25),
        ("devchain --block-interval 2m", "block_interval", 120.0),
    ],
)
def test_what_has_sense_is_taken(words, name, value):
    assert getattr(parsed(words), name) == value


def test_the_limits_are_those_of_the_simulated_chain_and_of_the_watcher():
    pending = build("devnet").params.max_pending_leases_per_tenant
    assert pending == MOST_LEASES
    assert pending * len(TENANTS) == bench.MOST_LEASES
    assert parse_seconds(LONGEST_INTERVAL) < SILENT_SECONDS


def test_more_calls_than_there_are_tokens_are_refused_before_anything_is_started(capsys):
    options = vars(parsed("bench api --route status --leases 10 --count 171"))
    assert bench.run(options) == 1
    assert capsys.readouterr().err == "bench: --count 171 needs --leases 11 or more: each call has its own token\n"
    api.refuse_too_many(170, leases=10)
