"""`manage.py`: what an operator can put right is said in one line, not in a trace."""

import pytest
from django.core.management import get_commands, load_command_class

from tests.fred.settings_of import good

APPS = {"fred", "leases", "backends", "placements", "reconciliation", "tenants_api"}
OURS = sorted((app, command) for command, app in get_commands().items() if app in APPS)
NOBODY = "postgres://fred:hunter2@127.0.0.1:1/fred"


@pytest.mark.parametrize("command", [("migrate",), ("createsuperuser", "--noinput", "--username=a", "--email=a@b.c")])
def test_a_command_that_needs_the_database_names_the_missing_setting(manage, command):
    done = manage(*command, variables={"DJANGO_SUPERUSER_PASSWORD": "x"})
    assert done.returncode == 1
    assert done.stderr.startswith("DATABASE_URL is required")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [("migrate",), ("backends", "list"), ("backends", "sync")])
def test_a_database_that_does_not_answer_is_named_without_its_password(manage, command):
    done = manage(*command, variables=good(DATABASE_URL=NOBODY, PROVIDER_LOG_LEVEL="error"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("no connection to the database at 127.0.0.1:1 (DATABASE_URL): ")
    assert "hunter2" not in done.stderr + done.stdout


@pytest.mark.parametrize("place", [("--config", "{}", "list"), ("list", "--config={}"), ("list", "-c", "{}")])
def test_the_settings_file_of_the_flag_is_read_wherever_the_flag_stands(manage, tmp_path, place):
    path = tmp_path / "provider.yaml"
    path.write_text("gas_limit: 0\n", encoding="utf-8")
    done = manage("backends", *(word.format(path) for word in place), variables=good())
    assert done.returncode == 1
    assert "gas_limit must be positive" in done.stderr


@pytest.mark.parametrize("command", ["watch_chain", "backends", "check_config"])
def test_every_command_of_the_provider_tells_of_the_flag(manage, command):
    assert "--config PATH" in manage(command, "--help", variables=good()).stdout


@pytest.mark.parametrize(("app", "command"), OURS, ids=[command for _, command in OURS])
def test_every_option_of_our_commands_has_a_help_text(app, command):
    parser = load_command_class(app, command).create_parser("manage.py", command)
    assert [action.option_strings for action in parser._actions if action.option_strings and not action.help] == []
