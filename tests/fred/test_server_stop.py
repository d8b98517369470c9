"""How the server stops, and how its certificate changes while it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from fred import server
from fred.certificates import CertificateError, ListenerTls
from fred.dev.foreground import free_port
from fred.limits import OPEN_STREAM, STOPPING
from fred.server import ADMIN_TIMES, of_settings, opens_nowhere
from fred.upgrade import is_events_target
from tests.backends.certificates import Authority
from tests.fred.served import connect, echo, live, served, upgrade
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
EVENTS = b"/v1/leases/x/events"


class House:
    """An application whose answers wait until they are let go; remembers the order of its ends."""

    def __init__(self):
        self.running = threading.Event()
        self.go = threading.Event()
        self.ends = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await live(receive, send)
            self.ends.append("application")
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            self.ends.append((await receive())["code"])
        elif scope["path"] == "/stream":
            scope[OPEN_STREAM]()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await scope["state"][STOPPING].wait()
            await send({"type": "http.response.body", "body": b"end"})
            self.ends.append("stream")
        else:
            self.running.set()
            await asyncio.to_thread(self.go.wait, 10)
            await echo(scope, receive, send)
            self.ends.append("request")


def get(target):
    return b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % target


def test_ta86_open_requests_end_first_then_streams_and_websockets_with_1001_then_the_application():
    house = House()
    with served(house, opens_socket=is_events_target) as serving:
        with serving.connect() as request, serving.connect() as events, serving.connect() as stream:
            events.send(upgrade(EVENTS))
            assert events.answer().status == 101
            stream.send(get(b"/stream"))
            request.send(get(b"/x"))
            assert house.running.wait(10)
            serving.ask_to_stop()
            wait_until(lambda: not any(one.is_serving() for one in serving.server.servers))
            assert house.ends == []
            house.go.set()
            assert request.answer().body == b"0 /x"
            assert request.rest() == b""
            assert events.frame() == (8, (1001).to_bytes(2, "big"))
            events.send_frame(8, (1001).to_bytes(2, "big"))
            assert events.frame() == (-1, b"")
            assert stream.answer().body == b"end"
        serving.thread.join(10)
    assert house.ends[0] == "request"
    assert set(house.ends[1:-1]) == {1001, "stream"}
    assert house.ends[-1] == "application"


def test_a_request_that_outlasts_the_limit_of_the_stop_is_cut(monkeypatch):
    monkeypatch.setattr(server, "FAREWELL_S", 0.1)
    house = House()
    with served(house, stop_s=0.1) as serving, serving.connect() as line:
        line.send(get(b"/x"))
        assert house.running.wait(10)
        serving.ask_to_stop()
        assert line.rest() == b""
        house.go.set()
    assert house.ends == ["application"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("pki"))


def serial_of(serving, authority):
    context = ssl.create_default_context(cafile=authority.file)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with serving.connect(context) as line:
        line.send(get(b"/x"))
        assert line.answer().body == b"0 /x"
        assert line.socket.selected_alpn_protocol() == "http/1.1"
        return line.socket.getpeercert()["serialNumber"]


def test_tls3_a_changed_certificate_is_taken_and_a_broken_one_is_not(authority):
    certificate, key = authority.issue("one", addresses=["127.0.0.1"], to="live")
    tls = ListenerTls.of(certificate, key)
    with served(echo, tls=tls) as serving:
        first = serial_of(serving, authority)
        context = ssl.create_default_context(cafile=authority.file)
        with serving.connect(context) as open_before:
            assert tls.reload() is False
            authority.issue("two", addresses=["127.0.0.1"], to="live")
            assert tls.reload() is True
            second = serial_of(serving, authority)
            Path(key).write_text("nonsense", encoding="ascii")
            with capture_logs() as logs:
                assert tls.reload() is False
            assert serial_of(serving, authority) == second != first
            open_before.send(get(b"/y"))
            assert open_before.answer().body == b"0 /y"
    assert [(line["event"], line["kept"]) for line in logs] == [("tls.not_reloaded", True)]


@pytest.mark.slow
def test_tls3_sighup_reads_the_certificate_again_and_sigterm_ends_the_process(authority):
    certificate, key = authority.issue("hup", addresses=["127.0.0.1"], to="hup")
    port = free_port()
    given = {"API_LISTEN_ADDR": f"127.0.0.1:{port}", "TLS_CERT_FILE": certificate, "TLS_KEY_FILE": key}
    environment = {**os.environ, **{f"PROVIDER_{name}": value for name, value in given.items()}}
    command = [sys.executable, "-m", "fred.server", "tests.fred.served:echo"]
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        one = SimpleNamespace(connect=lambda context=None: connect(port, context))
        try:
            first = wait_until(lambda: serial_or_none(one, authority))
            authority.issue("hup", addresses=["127.0.0.1"], to="hup")
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: serial_of(one, authority) != first)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def serial_or_none(serving, authority):
    try:
        return serial_of(serving, authority)
    except ConnectionRefusedError:
        return None


def test_tls2_a_pair_that_does_not_load_says_so(authority, tmp_path):
    certificate, _ = authority.issue("a", to="pair")
    _, other = authority.issue("b", to="other")
    with pytest.raises(CertificateError, match=r"failed to load TLS certificates: .*pair\.pem"):
        ListenerTls.of(certificate, other)


def test_tls2_such_a_pair_ends_the_process_before_it_listens(settings, capsys):
    files = {"tls_cert_file": "/nowhere.pem", "tls_key_file": "/nowhere.key"}
    settings.FRED = settings.FRED.model_copy(update=files)
    with pytest.raises(SystemExit) as ended:
        server.main([])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("failed to load TLS certificates: /nowhere.pem, /nowhere.key: ")


def test_the_server_is_what_the_settings_describe(settings, authority):
    certificate, key = authority.issue("c", to="settings")
    changed = settings.FRED.model_copy(
        update={
            "api_listen_addr": ":9999",
            "http_read_timeout": timedelta(seconds=1.5),
            "http_write_timeout": timedelta(seconds=2.5),
            "http_idle_timeout": timedelta(seconds=3.5),
            "shutdown_timeout": timedelta(seconds=4.5),
            "tls_cert_file": certificate,
            "tls_key_file": key,
        }
    )
    made = of_settings(changed, settings.HOUSE).config
    assert (made.host, made.port, made.stop_s) == ("", 9999, 4.5)
    assert (made.times.head_s, made.times.read_s, made.times.write_s, made.times.idle_s) == (5.0, 1.5, 2.5, 3.5)
    assert (made.times.ping_s, made.times.pong_s, made.ws_max_size) == (30.0, 40.0, 512)
    assert made.tls is not None
    assert made.opens_socket(EVENTS + b"?token=x")


def test_the_admin_site_has_its_own_address_and_no_websocket(settings):
    house = settings.HOUSE.model_copy(update={"fred_role": "admin", "fred_admin_listen_addr": "[::1]:81"})
    made = of_settings(settings.FRED, house).config
    assert (made.host, made.port, made.times, made.opens_socket) == ("::1", 81, ADMIN_TIMES, opens_nowhere)


def test_an_empty_host_listens_on_every_generation_of_ip_at_one_port():
    listeners = server._listeners("", 0)
    try:
        assert listeners[0].family == socket.AF_INET
        assert len({one.getsockname()[1] for one in listeners}) == 1
        assert len({one.family for one in listeners}) == len(listeners)
        for one in listeners:
            here = "127.0.0.1" if one.family == socket.AF_INET else "::1"
            socket.create_connection((here, one.getsockname()[1]), timeout=5).close()
    finally:
        for one in listeners:
            one.close()


def test_a_port_that_is_taken_ends_the_process_with_3(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = server.Server(server.ServerConfig(echo, port=taken.getsockname()[1]))
        with pytest.raises(SystemExit) as ended:
            one.run()
    assert ended.value.code == 3
    assert "cannot listen on 127.0.0.1" in caplog.text
