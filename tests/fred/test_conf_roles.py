"""Which settings a process needs, and what happens to those it does not need."""

import pytest

from fred import conf
from tests.fred.settings_of import SECRET, good


@pytest.mark.parametrize(
    ("argv", "role", "process"),
    [
        (["/app/manage.py", "watch_chain"], conf.Role.PROVIDER, "watcher"),
        (["manage.py", "backends", "sync"], conf.Role.PROVIDER, "backends"),
        (["manage.py", "backend_agent", "mock"], conf.Role.AGENT, "agent"),
        (["manage.py", "dev", "--once"], conf.Role.NONE, "dev"),
        (["manage.py", "devchain"], conf.Role.NONE, "devchain"),
        (["manage.py", "migrate"], conf.Role.NONE, "migrate"),
        (["manage.py", "check_config", "--show"], conf.Role.NONE, "check_config"),
        (["manage.py"], conf.Role.NONE, "python"),
        (["/venv/bin/celery", "-A", "fred", "worker", "-Q", "chain"], conf.Role.PROVIDER, "worker"),
        (["/venv/lib/celery/__main__.py", "-A", "fred", "beat"], conf.Role.PROVIDER, "beat"),
        (["/venv/bin/celery", "-A", "fred", "inspect", "ping"], conf.Role.NONE, "inspect"),
        (["/venv/bin/uvicorn", "fred.asgi:application"], conf.Role.PROVIDER, "web"),
        (["/venv/lib/uvicorn/__main__.py", "fred.asgi:application"], conf.Role.PROVIDER, "web"),
        (["/venv/bin/mypy"], conf.Role.NONE, "mypy"),
        (["/venv/lib/pytest/__main__.py"], conf.Role.NONE, "pytest"),
        ([], conf.Role.NONE, "python"),
    ],
)
def test_the_command_line_tells_the_role(argv, role, process):
    assert (conf.role_of(argv), conf.process_of(argv)) == (role, process)


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        (["manage.py", "reconcile", "--config", "/a"], "/a"),
        (["manage.py", "reconcile", "-c", "/a"], "/a"),
        (["manage.py", "reconcile", "--config=/a"], "/a"),
        (["manage.py", "reconcile", "--config"], None),
        (["celery", "worker", "-c", "2"], None),
        (["manage.py", "reconcile"], None),
    ],
)
def test_only_our_own_commands_have_a_config_flag(argv, path):
    assert conf.config_path_of(argv) == path


def test_without_a_role_missing_settings_only_matter_when_read():
    loaded = conf.load({}, role=conf.Role.NONE)
    with pytest.raises(conf.ConfigError, match="provider_uuid is required"):
        _ = loaded.provider.tree.provider_uuid


def test_a_provider_hears_of_every_tree_at_once():
    with pytest.raises(conf.ConfigError) as caught:
        conf.load(good(PROVIDER_KEY_NAME=None, DATABASE_URL=None, FRED_LOG_FORMAT="xml"), role=conf.Role.PROVIDER)
    text = str(caught.value)
    assert "key_name is required" in text
    assert "DATABASE_URL is required" in text
    assert "fred_log_format must be 'json' or 'text'" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"FRED_DEBUG": "true"}, "FRED_DEBUG cannot be enabled"),
        ({"DJANGO_SECRET_KEY": "short"}, "DJANGO_SECRET_KEY must be at least 50 characters"),
        ({"FRED_ROLE": "admin"}, "FRED_ALLOWED_HOSTS must name the hosts of the admin site"),
    ],
)
def test_production_is_not_as_loose_as_development(changes, message):
    conf.load(good(**changes), role=conf.Role.PROVIDER)
    with pytest.raises(conf.ConfigError, match=message):
        conf.load(good(PROVIDER_PRODUCTION_MODE="true", **changes), role=conf.Role.PROVIDER)


def test_the_broker_is_valkey_unless_it_has_its_own_url():
    assert conf.load_house(good(), required=True).tree.broker_url == "redis://valkey:6379/0"
    assert conf.load_house(good(CELERY_BROKER_URL="redis://b"), required=True).tree.broker_url == "redis://b"


def test_an_agent_needs_neither_services_nor_provider():
    loaded = conf.load({"MOCK_BACKEND_CALLBACK_SECRET": SECRET, "MOCK_BACKEND_DELAY": "1500ms"}, role=conf.Role.AGENT)
    assert loaded.agent is not None
    assert loaded.agent.tree.delay.total_seconds() == 1.5
    assert loaded.agent.tree.addr == "127.0.0.1:9000"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"MOCK_BACKEND_DELAY": "-1s"}, "MOCK_BACKEND_DELAY", id="BC-129 negative delay"),
        pytest.param(
            {"MOCK_BACKEND_CALLBACK_SECRET": "x" * 31}, "MOCK_BACKEND_CALLBACK_SECRET", id="BC-129 short secret"
        ),
        pytest.param({"MOCK_BACKEND_IDLE_TIMEOUT": "0s"}, "MOCK_BACKEND_IDLE_TIMEOUT", id="BC-129 no idle time"),
        pytest.param({"MOCK_BACKEND_FAIL_RATIO": "2"}, "MOCK_BACKEND_FAIL_RATIO", id="a ratio over one"),
        pytest.param({"MOCK_BACKEND_SENDER": "twice"}, "MOCK_BACKEND_SENDER", id="an unknown sender"),
    ],
)
def test_bad_settings_of_an_agent_are_named(changes, message):
    with pytest.raises(conf.ConfigError, match=message):
        conf.load_agent({"MOCK_BACKEND_CALLBACK_SECRET": SECRET, **changes})
