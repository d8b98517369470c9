"""docs/configuration.md says what the settings are, and which of them nothing reads."""

import ast
from pathlib import Path

import pytest

from fred.conf import AgentConfig, BackendConfig, HouseConfig, ProviderConfig
from fred.conf.reference import WITHOUT_EFFECT, reference

ROOT = Path(__file__).resolve().parents[2]
TREES = [ProviderConfig, BackendConfig, HouseConfig, AgentConfig]
APPS = ("fred", "leases", "backends", "placements", "reconciliation", "tenants_api")
# How code calls the tree that it reads from; an entry of `backends` has many names.
HOLDERS = {"config", "_config", "house", "provider", "FRED", "HOUSE", "AGENT"}
# Read through a method of the tree, or by a rule over several keys.
READ_AS = {
    "api_listen_addr": "api_address",
    "callback_secret": "hmac_key",
    "celery_broker_url": "broker_url",
    "hmac_secret": "hmac_key",
    "hmac_secret_previous": "previous_hmac_key",
    "trusted_proxies": "trusts",
}
ONLY_CHECKED = {"production_mode", "production_strict"}
READ_FROM_THE_ENVIRONMENT = {"prometheus_multiproc_dir", "fred_crash_at"}


def keys(tree):
    return [pytest.param(tree, key, id=f"{tree.__name__}.{key}") for key in tree.model_fields]


ALL_KEYS = [one for tree in TREES for one in keys(tree)]


@pytest.fixture(scope="module")
def names_read():
    """What code outside of the settings reads: attributes with their holder's name, and names of the environment."""
    found = {"attributes": set(), "environment": set()}
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            if path.is_relative_to(ROOT / "fred" / "conf") or path.is_relative_to(ROOT / "fred" / "dev"):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found["attributes"].add((getattr(node.value, "attr", getattr(node.value, "id", "")), node.attr))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper():
                    found["environment"].add(node.value)
    return found


def test_the_page_is_what_the_trees_say():
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == reference(), "write it anew: python manage.py check_config --reference > docs/configuration.md"


def test_the_command_prints_the_page_without_any_settings(manage):
    done = manage("check_config", "--reference", variables={})
    assert (done.returncode, done.stdout) == (0, reference())


@pytest.mark.parametrize(("tree", "key"), ALL_KEYS)
def test_every_key_has_a_meaning(tree, key):
    text = tree.model_fields[key].description
    assert text
    assert text.endswith(".")


@pytest.mark.parametrize(("tree", "key"), ALL_KEYS)
def test_a_key_is_called_without_effect_exactly_when_nothing_reads_it(tree, key, names_read):
    if key in ONLY_CHECKED:
        assert key not in WITHOUT_EFFECT[tree]
        return
    if key in READ_FROM_THE_ENVIRONMENT:
        is_read = key.upper() in names_read["environment"]
    else:
        holders = {holder for holder, name in names_read["attributes"] if name == READ_AS.get(key, key)}
        is_read = bool(holders) if tree is BackendConfig else bool(holders & HOLDERS)
    assert is_read == (key not in WITHOUT_EFFECT[tree])


def test_every_key_stands_in_the_page():
    page = reference()
    missing = [
        name
        for name in (
            *(f"`PROVIDER_{key.upper()}`" for key in ProviderConfig.model_fields),
            *(f"| `{key}` |" for key in BackendConfig.model_fields),
            *(f"`{key.upper()}`" for key in HouseConfig.model_fields),
            *(f"`MOCK_BACKEND_{key.upper()}`" for key in AgentConfig.model_fields),
        )
        if name not in page
    ]
    assert missing == []
