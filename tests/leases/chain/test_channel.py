from __future__ import annotations

import datetime as dt
import socket
import time

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from leases.chain.channel import Tls
from leases.chain.client import Unknown
from leases.chain.cosmos import CosmosClient
from leases.chain.errors import (
    ChainError,
    ChainUnavailable,
)
from leases.chain.proto import tendermint_pb2
from tests.leases.chain.node import (
    LATEST,
    LEASE,
    OURS,
    block,
    running,
)


def test_a_syncing_node_says_so(node, client):
    node.answers["/cosmos.base.tendermint.v1beta1.Service/GetSyncing"] = tendermint_pb2.GetSyncingResponse(syncing=True)
    assert client.is_syncing()


def test_a_hanging_node_is_given_up_in_time():
    """CH-28"""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = CosmosClient(f"127.0.0.1:{deaf.getsockname()[1]}", provider_uuid=OURS, query_seconds=0.3)
        started = time.monotonic()
        assert isinstance(client.lease(LEASE), Unknown)
        assert time.monotonic() - started < 5
        client.close()


def test_a_closed_port_is_silence():
    client = CosmosClient("127.0.0.1:9", provider_uuid=OURS, query_seconds=2)
    assert isinstance(client.lease(LEASE), Unknown)
    with pytest.raises(ChainUnavailable):
        client.latest_height()
    client.close()


def test_a_node_that_comes_back_is_used_again():
    with running() as node:
        node.answers[LATEST] = block()
        client = CosmosClient(node.endpoint, provider_uuid=OURS, query_seconds=2)
        assert client.latest_height().height == 39
    with pytest.raises(ChainUnavailable):
        client.latest_height()
    client.close()
    with running(node) as again:
        other = CosmosClient(again.endpoint, provider_uuid=OURS)
        assert other.latest_height().height == 39
        other.close()


def test_a_closed_client_connects_anew(client):
    assert client.latest_height().height == 39
    client.close()
    assert client.latest_height().height == 39


def test_a_forked_child_makes_its_own_connection(client, monkeypatch):
    client.latest_height()
    inherited = client._channel._channel
    monkeypatch.setattr("leases.chain.channel.os.getpid", lambda: -1)
    assert client.latest_height().height == 39
    assert client._channel._channel is not inherited
    inherited.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "failed to read CA file", id="missing"),
        pytest.param("nonsense", "failed to parse CA certificate", id="nonsense"),
    ],
)
def test_an_unusable_ca_file_stops_the_start(tmp_path, content, message):
    """CH-88"""
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ChainError, match=message):
        CosmosClient("127.0.0.1:1", provider_uuid=OURS, tls=Tls(ca_file=str(path)))


@pytest.fixture(scope="module")
def certificate():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node.example")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("node.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, made.public_bytes(serialization.Encoding.PEM)


def test_tls_trusts_what_it_was_told_to(tmp_path, certificate):
    private, public = certificate
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(public)
    with running(credentials=grpc.ssl_server_credentials([(private, public)])) as node:
        node.answers[LATEST] = block()
        for tls, works in [
            (Tls(), False),
            (Tls(ca_file=str(ca_file)), False),  # right roots, but the certificate is for another name
            (Tls(verify=False), True),
        ]:
            client = CosmosClient(node.endpoint, provider_uuid=OURS, tls=tls, query_seconds=5)
            if works:
                assert client.latest_height().height == 39
            else:
                with pytest.raises(ChainUnavailable):
                    client.latest_height()
            client.close()
