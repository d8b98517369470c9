"""TLS at the agent's door: who is let in, what is said of the others, and files that change."""

import socket
import ssl
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from backends.agent_metrics import TLS_REASONS
from backends.agent_tls import NAMES_WITHOUT_CA, ServerTls, TlsError, TlsFiles
from fred.conf import ConfigError, load
from fred.conf.roles import Role
from fred.http import ErrorKind, Request, Tls, fetch
from tests.backends.certificates import Authority
from tests.backends.servers import SECRET, mock_agent, served
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    ours, theirs = Authority(folder), Authority(folder, "other-ca")
    return {
        "ca": ours.file,
        "other ca": theirs.file,
        "server": ours.issue("server", addresses=["127.0.0.1"]),
        "elsewhere": ours.issue("elsewhere", dns=["backend.example"]),
        "ended": ours.issue("ended", addresses=["127.0.0.1"], lives=(-2, -1)),
        "cp": ours.issue("cp"),
        "cp by dns": ours.issue("x", dns=["www.example", "cp"]),
        "other": ours.issue("other", dns=["cp.example"]),
        "expired": ours.issue("cp", lives=(-3, -1), to="expired"),
        "early": ours.issue("cp", lives=(1, 2), to="early"),
        "foreign": theirs.issue("cp"),
    }


def files(pki, *, server="server", mutual=True, allowed=("cp",)):
    return TlsFiles(*pki[server], pki["ca"] if mutual else "", frozenset(allowed) if mutual else frozenset())


def knock(url, pki, *, client="", ca="ca"):
    certificate, key = pki[client] if client else ("", "")
    tls = Tls(ca_file=pki[ca], client_cert_file=certificate, client_key_file=key)
    return fetch(Request(f"{url}/health", timeout=5, tls=tls))


@pytest.mark.parametrize("client", ["cp", "cp by dns"])
def test_bc133_a_named_client_comes_in(pki, client):
    with served(mock_agent(), files=files(pki)) as url:
        assert knock(url, pki, client=client).status == 200


@pytest.mark.parametrize(
    ("client", "reason", "text"),
    [
        ("", "no_certificate", "client did not present a certificate"),
        ("foreign", "unknown_authority", "client certificate signed by unknown authority"),
        ("expired", "expired", "client certificate has expired"),
        ("early", "not_yet_valid", "client certificate is not yet valid"),
        ("other", "name_not_allowed", "client certificate identity not allowed: other, cp.example"),
    ],
)
def test_bc133_others_are_refused_with_a_reason(pki, client, reason, text):
    agent = mock_agent()
    with capture_logs() as logs, served(agent, files=files(pki)) as url:
        answer = knock(url, pki, client=client)
        assert answer.status is None
        # The client has sent its request before it learns of the refusal: nothing proves that it was not taken.
        assert answer.error.kind is ErrorKind.AMBIGUOUS
        wait_until(lambda: agent.metrics.tls_refused[reason] == 1)
        told = {"event": "agent.tls_refused", "reason": reason, "error": text, "log_level": "warning"}
        assert told in logs
        refused = {name: count for name, count in agent.metrics.tls_refused.items() if count}
        assert refused == {reason: 1}
        page = fetch(Request(f"{url}/metrics", tls=tls_of(pki), timeout=5)).body.decode()
    assert f'fred_backend_tls_refused_total{{reason="{reason}"}} 1.0' in page


def tls_of(pki):
    return Tls(ca_file=pki["ca"], client_cert_file=pki["cp"][0], client_key_file=pki["cp"][1])


def test_all_reasons_are_there_from_the_start():
    page = mock_agent().metrics.text().decode()
    assert all(f'fred_backend_tls_refused_total{{reason="{reason}"}} 0.0' in page for reason in TLS_REASONS)


@pytest.mark.parametrize(
    ("server", "ca"), [("elsewhere", "ca"), ("server", "other ca"), ("ended", "ca")], ids=["name", "authority", "ended"]
)
def test_a_client_that_does_not_trust_the_server_sends_nothing_and_is_not_counted(pki, server, ca):
    agent = mock_agent()
    with served(agent, files=files(pki, server=server, mutual=False)) as url:
        answer = knock(url, pki, ca=ca)
        assert (answer.error.kind, answer.error.sent_nothing) == (ErrorKind.TLS, True)
        assert knock_plainly(url) == 200
    assert sum(agent.metrics.tls_refused.values()) == 0


def knock_plainly(url):
    return fetch(Request(f"{url}/health", timeout=5, tls=Tls(skip_verify=True))).status


def test_tls_1_2_is_refused(pki):
    agent = mock_agent()
    with served(agent, files=files(pki, mutual=False)) as url:
        context = ssl.create_default_context(cafile=pki["ca"])
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError), socket.create_connection(address(url)) as raw:
            context.wrap_socket(raw, server_hostname="127.0.0.1")
        wait_until(lambda: agent.metrics.tls_refused["protocol_version"] == 1)


def address(url):
    host, port = url.removeprefix("https://").split(":")
    return host, int(port)


def test_bc133_the_name_is_looked_at_on_a_resumed_connection_too(pki):
    allowed = {"cp"}
    agent = mock_agent()
    wanted = files(pki)
    tls = ServerTls.of(wanted, agent.metrics)
    context = ssl.create_default_context(cafile=pki["ca"])
    context.load_cert_chain(*pki["cp"])
    with served(agent, files=wanted) as url:

        def visit(session=None):
            with (
                socket.create_connection(address(url), timeout=5) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as line,
            ):
                line.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                got = b""
                while chunk := line.recv(4096):
                    got += chunk
                return got.split(b"\r\n")[0], line.session, line.session_reused

        first, session, reused = visit()
        assert (first, reused) == (b"HTTP/1.1 200 OK", False)
        second, _, reused = visit(session)
        assert (second, reused) == (b"HTTP/1.1 200 OK", True)
    assert tls.files.allowed_names == allowed


def test_certificates_are_read_again_when_they_change_and_a_broken_set_is_not_taken(pki, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("a", addresses=["127.0.0.1"], to="live")
    agent = mock_agent()
    tls = ServerTls.of(TlsFiles(certificate, key), agent.metrics)
    assert tls.reload() is False
    first = agent.metrics.certificate_ends()[certificate]
    authority.issue("b", addresses=["127.0.0.1"], lives=(-1, 30), to="live")
    assert tls.reload() is True
    assert agent.metrics.certificate_ends()[certificate] - first > 28 * 86_400
    Path(certificate).write_text("nonsense", encoding="ascii")
    with capture_logs() as logs:
        assert tls.reload() is False
    assert [line["event"] for line in logs] == ["agent.tls_not_reloaded"]
    assert first > time.time()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"certificate": "/nowhere"}, "failed to load TLS certificates: /nowhere"),
        ({"client_ca": "/nowhere"}, "no certificates found in /nowhere"),
        ({"client_ca": ""}, "allowed client names require a client CA"),
    ],
)
def test_files_that_cannot_be_used_stop_the_start(pki, changes, text):
    good = files(pki)
    fields = {name: getattr(good, name) for name in ("certificate", "key", "client_ca", "allowed_names")}
    with pytest.raises(TlsError, match=text):
        ServerTls.of(TlsFiles(**{**fields, **changes}), mock_agent().metrics)


def settings(**changes):
    variables = {"MOCK_BACKEND_CALLBACK_SECRET": SECRET}
    variables |= {f"MOCK_BACKEND_{key.upper()}": value for key, value in changes.items()}
    try:
        load(variables, role=Role.AGENT)
    except ConfigError as error:
        return [problem.message for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tls_cert_file": "a"}, "both tls_cert_file and tls_key_file must be set together"),
        ({"tls_client_ca_file": "a"}, "a client CA requires a TLS certificate"),
        ({"tls_cert_file": "a", "tls_key_file": "b", "tls_client_allowed_names": "cp"}, NAMES_WITHOUT_CA),
        ({"control_token": "short"}, "control_token must be at least 16 characters"),
        ({"control_token": "t" * 16, "addr": "0.0.0.0:9000"}, "the control API is offered on loopback addresses only"),
        ({"callback_secret_next": "short"}, "callback_secret_next must be at least 32 characters"),
    ],
)
def test_bc134_settings_that_contradict_each_other_stop_the_start(changes, text):
    assert settings(**changes) == [text]


def test_settings_that_fit_are_taken():
    tls = {"tls_cert_file": "a", "tls_key_file": "b", "tls_client_ca_file": "c", "tls_client_allowed_names": "cp,cp2"}
    assert settings(**tls) == []
    assert settings(control_token="t" * 16, addr="0.0.0.0:9000", control_anywhere="true") == []
    assert settings(control_token="t" * 16, addr="[::1]:9000") == []
