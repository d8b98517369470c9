"""Which settings a process needs, and what happens to those it does not need."""

import pytest

from fred import conf
from tests.fred.settings_of import SECRET, good


@pytest.mark.parametrize(
    ("argv", "role", "process"),
    [
        (["/app/manage.py", "watch_chain"], conf.Role.PROVIDER, "watcher"),
        (["manage.py", "backends", "sync"], conf.Role.PROVIDER, "backends"),
        (["manage.py", "backends", "fence", "--help"], conf.Role.NONE, "backends"),
        (["manage.py", "backend_agent", "mock"], conf.Role.AGENT, "agent"),
        (["manage.py", "backend_agent", "-h"], conf.Role.NONE, "agent"),
        (["manage.py", "dev", "--once"], conf.Role.NONE, "dev"),
        (["manage.py", "devchain"], conf.Role.NONE, "devchain"),
        (["manage.py", "migrate"], conf.Role.NONE, "migrate"),
        (["manage.py", "check_config", "--show"], conf.Role.NONE, "check_config"),
        (["manage.py"], conf.Role.NONE, "python"),
        (["/venv/bin/celery", "-A", "fred", "worker", "-Q", "chain"], conf.Role.PROVIDER, "worker"),
        (["/venv/lib/celery/__main__.py", "-A", "fred", "beat"], conf.Role.PROVIDER, "beat"),
        (["/venv/bin/celery", "-A", "fred", "inspect", "ping"], conf.Role.NONE, "inspect"),
        (["/app/fred/server.py", "fred.asgi:application"], conf.Role.PROVIDER, "web"),
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
        (["manage.py", "reconcile", "-c/a"], "/a"),
        (["manage.py", "reconcile"], None),
        (["manage.py", "shell", "-c", "print(1)"], None),
        (["manage.py", "migrate", "--config", "/a"], None),
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


SERVICE_FAULTS = [
    ("DATABASE_URL", "mysql://x", "must begin with postgres:// or postgresql://"),
    ("DATABASE_URL", "foo", "must begin with postgres:// or postgresql://"),
    ("DATABASE_URL", "postgres:fred", "must begin with postgres:// or postgresql://"),
    ("DATABASE_URL", "postgres://fred:top/secret@db/fred", "has no usable port"),
    ("DATABASE_URL", "postgres://fred:1#secret@db/fred", "names no database"),
    ("DATABASE_URL", "postgres://nohost:notaport", "has no usable port"),
    ("DATABASE_URL", "postgres://h:70000/fred", "has no usable port"),
    ("DATABASE_URL", "postgres:///fred", "has no host"),
    ("DATABASE_URL", "postgres://fred@/fred", "has no host"),
    ("DATABASE_URL", "postgres://a:5432,b:secret/fred", "has no usable port"),
    ("DATABASE_URL", "postgres://db", "names no database"),
    ("DATABASE_URL", "postgres://[secret/fred", "is not a URL"),
    ("REDIS_URL", "http://secret", "must begin with redis:// or rediss://"),
    ("REDIS_URL", "redis://:top/secret@db", "has no usable port"),
    ("REDIS_URL", "redis:///0", "has no host"),
    ("REDIS_URL", "redis://valkey/secret", "must end with the number of a database"),
    ("CELERY_BROKER_URL", "amqp://secret@x", "must begin with redis:// or rediss://"),
]


@pytest.mark.parametrize("role", [conf.Role.PROVIDER, conf.Role.NONE])
@pytest.mark.parametrize(("name", "url", "fault"), SERVICE_FAULTS)
def test_an_unusable_url_of_a_service_is_named_and_nothing_of_it_shown(name, url, fault, role):
    with pytest.raises(conf.ConfigError) as caught:
        conf.load(good(**{name: url}), role=role)
    (line,) = str(caught.value).splitlines()
    assert f"{name} {fault}" in line
    assert "for example" in line
    assert "secret" not in line
    assert "top" not in line


@pytest.mark.parametrize(
    "url",
    [
        "postgres://db/fred",
        "postgresql://fred:p%2Fw@db:5433/fred?sslmode=require",
        "postgres://a:5432,b/fred",
        "postgres://[::1]:5432/fred",
        "postgres://%2Fvar%2Frun%2Fpostgresql/fred",
    ],
)
def test_usable_urls_of_the_database_are_taken(url):
    assert conf.load_house(good(DATABASE_URL=url), required=True).tree.database_url.get_secret_value() == url


def test_unknown_variables_of_the_house_only_warn():
    variables = good(FRED_ROEL="admin", FRED_MNEMONIC_FILE="/dev/null", FRED_BENCH_PIPE="1")
    assert conf.load_house(variables, required=True).warnings == ("unknown FRED_ variables are ignored: FRED_ROEL",)


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
