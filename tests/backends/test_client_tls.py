"""TLS towards backends: who is believed, what a fault proves, and certificates that change."""

import contextlib
import shutil
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from django.conf import settings
from structlog.testing import capture_logs

from backends import targets
from backends.agent_tls import TlsFiles
from backends.client import BackendClient, NotSent, classify_provision, provision_request
from backends.contract import Absent, Unknown
from fred import readings
from fred.certificates import CertificateError, ClientCertificates, ClientFiles, ends_of
from fred.conf import BackendConfig
from fred.http import ErrorKind, Multi, Request, Tls, fetch
from tests.backends.certificates import Authority
from tests.backends.servers import LEASE, mock_agent, peer, served, spec, target
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
        "cp again": ours.issue("cp", to="again", lives=(-1, 3)),
    }


def one_request(request):
    multi = Multi()
    multi.submit(request)
    found = []
    wait_until(lambda: found.extend(multi.poll(0.05)) or found)
    multi.close()
    return found[0]


@pytest.mark.parametrize(
    ("server", "ca", "words"),
    [
        ("server", "other ca", "unable to get local issuer certificate"),
        ("elsewhere", "ca", "127.0.0.1"),
        ("ended", "ca", "certificate has expired"),
    ],
)
@pytest.mark.parametrize("send", [fetch, one_request])
def test_p15_a_servers_certificate_fault_is_told_exactly_and_nothing_was_sent(pki, server, ca, words, send):
    with served(mock_agent(), files=TlsFiles(*pki[server])) as url:
        where = target(url, tls=Tls(ca_file=pki[ca]))
        response = send(provision_request(where, spec()))
    assert (response.error.kind, response.status) == (ErrorKind.TLS, None)
    assert words in response.error.message
    outcome = classify_provision(response)
    assert isinstance(outcome, NotSent)
    assert words in outcome.reason


@pytest.mark.parametrize("send", [fetch, one_request])
def test_p15_bc135_a_server_without_tls_1_3_gets_nothing(pki, send):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(*pki["server"])
    read = []

    def serve(listener):
        with (
            contextlib.suppress(OSError),
            listener.accept()[0] as plain,
            context.wrap_socket(plain, server_side=True) as one,
        ):
            read.append(one.recv(1))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        request = Request(f"https://127.0.0.1:{listener.getsockname()[1]}/", body=b"{}", tls=Tls(ca_file=pki["ca"]))
        error = send(request).error
        thread.join(5)
    assert (error.kind, error.sent_nothing) == (ErrorKind.TLS, True)
    assert read == []


def test_p15_verification_can_be_skipped(pki):
    with served(mock_agent(), files=TlsFiles(*pki["elsewhere"])) as url:
        assert fetch(Request(f"{url}/health", tls=Tls(skip_verify=True))).status == 200


def copied(pki, folder, certificate):
    """Files of their own with this certificate, to be changed."""
    paths = [folder / name for name in ("ca.pem", "client.pem", "client.key")]
    for source, path in zip((pki["ca"], *pki[certificate]), paths, strict=True):
        shutil.copy(source, path)
    return ClientFiles(*map(str, paths))


def replace(pki, files, certificate):
    for source, path in zip(pki[certificate], (files.certificate, files.key), strict=True):
        shutil.copy(source, f"{path}.new")
        Path(f"{path}.new").replace(path)


def test_op_tls3_a_changed_certificate_is_used_for_new_connections_and_the_old_ones_end(pki, tmp_path):
    files = copied(pki, tmp_path, "cp")
    certificates = ClientCertificates("b1", files)
    before = certificates.tls()
    assert certificates.tls() == before
    replace(pki, files, "cp again")
    after = certificates.tls()
    assert after.client_cert_pem != before.client_cert_pem
    with served(mock_agent(), files=TlsFiles(*pki["server"], pki["ca"], frozenset({"cp"}))) as url:
        for tls in (before, before, after, after):
            assert fetch(Request(f"{url}/health", tls=tls)).status == 200
    with peer() as plain:
        for tls in (before, before, after, after):
            fetch(Request(plain.url, tls=tls))


def test_op_tls3_what_does_not_load_leaves_the_certificate_before_in_use(pki, tmp_path):
    files = copied(pki, tmp_path, "cp")
    certificates = ClientCertificates("b1", files)
    before = certificates.tls()
    Path(files.key).write_text("junk")
    with capture_logs() as lines:
        assert certificates.tls() == before
        assert certificates.tls() == before
    assert [line["event"] for line in lines] == ["tls.not_reloaded"]
    replace(pki, files, "cp again")
    with capture_logs() as lines:
        assert certificates.tls() != before
    assert [line["event"] for line in lines] == ["tls.reloaded"]


@pytest.mark.parametrize("damage", ["no file", "no certificate", "another key"])
def test_op_tls6_files_that_never_loaded_are_an_error_that_names_them(pki, tmp_path, damage):
    files = copied(pki, tmp_path, "cp")
    if damage == "no file":
        Path(files.ca).unlink()
    elif damage == "no certificate":
        Path(files.ca).write_text("nothing here")
    else:
        shutil.copy(pki["server"][1], files.key)
    named = files.key if damage == "another key" else f"no certificates found in {files.ca}"
    with pytest.raises(CertificateError) as error:
        ClientCertificates("b1", files).tls()
    assert named in str(error.value)
    assert "PRIVATE" not in str(error.value)


@pytest.fixture
def configure(db, monkeypatch, valkey):
    def use(**fields):
        entry = BackendConfig(name="b1", contract="v0_13", **fields)
        monkeypatch.setattr(settings, "FRED", settings.FRED.model_copy(update={"backends": (entry,)}))
        targets.forget()
        return entry

    yield use
    targets.forget()


def test_bc133_a_configured_backend_with_a_pinned_client_name(configure, pki):
    with served(mock_agent(), files=TlsFiles(*pki["server"], pki["ca"], frozenset({"cp"}))) as url:
        certificate, key = pki["cp"]
        configure(
            url=url,
            tls_ca_file=pki["ca"],
            tls_client_cert_file=certificate,
            tls_client_key_file=key,
            hmac_secret="0123456789abcdef0123456789abcdef",
        )
        assert isinstance(targets.client("b1").provision_info(LEASE), Absent)


def test_a_backend_whose_files_cannot_be_used_is_not_contacted(configure, pki):
    with peer() as server:
        configure(url=server.url.replace("http", "https"), tls_ca_file="/nonexistent/ca.pem")
        found = targets.configured()["b1"]
        assert "/nonexistent/ca.pem" in found.shut
        assert targets.client("b1") is None
        assert BackendClient(found).info(LEASE) == Unknown(found.shut)
        assert server.connections == 0


def test_op_tls8_files_of_a_fenced_backend_are_not_opened(configure):
    configure(url="https://127.0.0.1:1", tls_ca_file="/nonexistent/ca.pem", fenced=True)
    assert targets.configured()["b1"].shut == 'backend "b1" is fenced'
    assert readings.of_the_certificates() == {"fred_tls_certificate_not_after_seconds": {}}


def test_op_tls4_the_ends_of_certificates_are_gauges(configure, pki):
    certificate, key = pki["cp again"]
    configure(
        url="https://127.0.0.1:1", tls_ca_file=pki["ca"], tls_client_cert_file=certificate, tls_client_key_file=key
    )
    found = readings.of_the_certificates()["fred_tls_certificate_not_after_seconds"]
    assert found == {("backend_ca", "b1"): ends_of(pki["ca"]), ("backend_client", "b1"): ends_of(certificate)}
    assert found["backend_client", "b1"] == pytest.approx(time.time() + 3 * 86_400, abs=3600)


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/x", "http://[fe80::1]/x", "http://0.0.0.0:1/x", "http://[::]:1/x"]
)
@pytest.mark.parametrize("send", [fetch, one_request])
def test_a_guarded_request_reaches_no_machine_credentials(url, send):
    response = send(Request(url, timeout=2, guarded=True))
    assert (response.error.kind, response.error.sent_nothing) == (ErrorKind.INVALID, True)
    assert "not allowed" in response.error.message


@pytest.mark.parametrize("send", [fetch, one_request])
def test_a_guard_is_that_of_one_request_alone(send):
    with peer() as server:
        for guarded in (True, False, True):
            assert send(Request(server.url, guarded=guarded)).status == 200
    assert send(Request("http://0.0.0.0:1/x", timeout=2)).error.kind is ErrorKind.REFUSED
