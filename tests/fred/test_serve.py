"""The command lines behind the image's entry point."""

import pytest

from fred import serve
from tests.fred.settings_of import good


def test_web_is_served_as_the_settings_say():
    command = serve.command_of("web", good(PROVIDER_API_LISTEN_ADDR=":9999", PROVIDER_HTTP_IDLE_TIMEOUT="5s"))
    text = " ".join(command)
    assert "uvicorn fred.asgi:application --host 0.0.0.0 --port 9999" in text
    assert "--http httptools" in text
    assert "--timeout-keep-alive 5" in text
    assert "--ssl-certfile" not in text


def test_web_serves_tls_when_it_has_a_pair():
    command = serve.command_of("web", good(PROVIDER_TLS_CERT_FILE="/c", PROVIDER_TLS_KEY_FILE="/k"))
    assert command[-4:] == ["--ssl-certfile", "/c", "--ssl-keyfile", "/k"]


def test_admin_has_its_own_address():
    text = " ".join(serve.command_of("admin", good(FRED_ADMIN_LISTEN_ADDR="[::1]:81")))
    assert "--host ::1 --port 81" in text


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
