"""docker-compose.yml and Dockerfile name processes, settings, volumes and folders that exist."""

import re
from pathlib import Path

import pytest
import yaml

from fred import conf, serve
from fred.celery import QUEUES
from fred.conf import HouseConfig, ProviderConfig
from tests.fred.settings_of import good

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "fred"}
WORKERS = [service["command"] for service in OURS.values() if service["command"][0] == "worker"]


@pytest.mark.parametrize("service", OURS)
def test_a_service_becomes_a_process_that_there_is(service):
    assert serve.command_of(OURS[service]["command"][0], good())


def test_every_process_of_the_control_plane_has_a_service():
    assert {service["command"][0] for service in OURS.values()} == {"web", "admin", "worker", "beat", "watcher"}


def test_every_queue_has_a_worker():
    assert {command[command.index("--queues") + 1] for command in WORKERS} == set(QUEUES)


def test_every_worker_says_how_many_children_it_has():
    assert all("--concurrency" in command for command in WORKERS)


def test_only_the_signing_worker_has_key_and_passphrase():
    holders = {
        name
        for name, service in OURS.items()
        if "signer.env" in service["env_file"] or any("keys" in volume for volume in service["volumes"])
    }
    assert holders == {"worker-chain"}


def test_the_database_gets_none_of_our_secrets():
    assert COMPOSE["services"]["postgres"]["env_file"] == "postgres.env"


def test_every_setting_that_is_named_exists():
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8") + (ROOT / "Dockerfile").read_text(encoding="utf-8")
    known = {key.upper() for key in HouseConfig.model_fields} | {
        f"PROVIDER_{key.upper()}" for key in ProviderConfig.model_fields
    }
    named = re.findall(r"\b(?:PROVIDER|FRED|DJANGO|DATABASE|REDIS|CELERY|PROMETHEUS)_[A-Z_]+[A-Z]\b", text)
    assert named
    assert set(named) <= known


def test_every_named_volume_is_declared():
    used = {
        volume.split(":")[0]
        for service in COMPOSE["services"].values()
        for volume in service.get("volumes", ())
        if not volume.startswith(".")
    }
    assert used == set(COMPOSE["volumes"])


def test_the_image_gets_every_app_and_nothing_that_is_not_there():
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for line in copies for name in line.split()}
    assert {name for name in names if not (ROOT / name).exists()} == set()
    assert {"fred", "leases", "backends", "placements", "reconciliation", "tenants_api", "templates"} <= names


def test_what_the_image_copies_reaches_the_build():
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for line in copies for name in line.split() if f"!{name}" not in allowed} == set()


EXAMPLES = ROOT / "fixtures" / "compose"


def example_of(name):
    lines = (EXAMPLES / f"{name}.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_every_env_file_has_an_example():
    named = set()
    for service in COMPOSE["services"].values():
        files = service.get("env_file", [])
        named |= {files} if isinstance(files, str) else set(files)
    assert {path.name for path in EXAMPLES.iterdir()} == {f"{name}.example" for name in named}


def test_the_examples_are_good_once_what_is_empty_is_filled_in():
    given = example_of("provider.env")
    empty = {name for name, value in given.items() if not value}
    filled = {**given, **{name: value for name, value in good().items() if name in empty}}
    loaded = conf.load({**filled, **example_of("signer.env")}, role=conf.Role.PROVIDER)
    assert (loaded.provider.warnings, loaded.house.warnings) == ((), ())
    with pytest.raises(conf.ConfigError) as caught:
        conf.load(given, role=conf.Role.PROVIDER)
    missing = {problem.where.partition(" ")[0] for problem in caught.value.problems}
    assert missing == empty


def test_no_example_holds_a_secret():
    for name in ("provider.env", "signer.env", "postgres.env"):
        for key, value in example_of(name).items():
            assert not value or not re.search("SECRET|PASS|MNEMONIC|KEY$|DATABASE", key), key
