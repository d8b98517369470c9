"""The command lines behind the image's entry point."""

import pytest

from fred import serve
from tests.fred.settings_of import good


@pytest.mark.parametrize("process", ["web", "admin"])
def test_web_and_admin_are_the_same_server(process):
    assert serve.command_of(process, good())[1:] == ["-m", "fred.server", "fred.asgi:application"]


@pytest.mark.parametrize("process", ["worker", "beat", "watcher", "agent", "devchain", "manage"])
def test_other_processes_need_no_settings_to_be_named(process):
    assert serve.command_of(process, {})


def test_an_unknown_process_ends_with_2(capsys):
    with pytest.raises(SystemExit) as caught:
        serve.main(["nonsense"])
    assert caught.value.code == 2
    assert "unknown process 'nonsense'" in capsys.readouterr().err


def test_bad_settings_end_with_1(capsys, monkeypatch):
    monkeypatch.setattr("os.environ", good(PROVIDER_KEY_NAME=None))
    with pytest.raises(SystemExit) as caught:
        serve.main(["web"])
    assert caught.value.code == 1
    assert "key_name is required" in capsys.readouterr().err
