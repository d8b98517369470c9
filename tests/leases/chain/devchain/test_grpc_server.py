"""The gRPC port as a server: past heights, reflection, clients that ping too often, gas of a block."""

from __future__ import annotations

import socket
import struct

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from leases.chain import devchain as simulated
from leases.chain.proto import billing_pb2, tx_pb2
from tests.devchain_fixture import Wallet

LEASE = "/liftedinit.billing.v1.Query/Lease"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7


def state_at(chain, uuid, height):
    """The state of a lease as of a height that the request header names, and the height of the answer."""
    request = billing_pb2.QueryLeaseRequest(lease_uuid=uuid).SerializeToString()
    with grpc.insecure_channel(chain.grpc) as channel:
        stub = channel.unary_unary(LEASE, request_serializer=None, response_deserializer=None)
        data, call = stub.with_call(request, timeout=5, metadata=(("x-cosmos-block-height", str(height)),))
        told = dict(call.initial_metadata())["x-cosmos-block-height"]
    return billing_pb2.QueryLeaseResponse.FromString(data).lease.state, int(told)


def test_a_past_height_is_read_where_history_is_on():
    with simulated.run(limits=simulated.Limits(history=True)) as chain:
        uuid = chain.create_lease()
        made = chain.height
        chain.ack_leases([uuid])
        assert state_at(chain, uuid, made) == (1, made)
        assert state_at(chain, uuid, made + 1) == (2, made + 1)
        for beyond in (made + 50, "soon"):
            with pytest.raises(grpc.RpcError) as caught:
                state_at(chain, uuid, beyond)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_past_height_is_ignored_where_history_is_off(devchain):
    uuid = devchain.create_lease()
    made = devchain.height
    devchain.ack_leases([uuid])
    assert state_at(devchain, uuid, made) == (2, made + 1)


def test_reflection_names_every_service(devchain):
    with grpc.insecure_channel(devchain.grpc) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = stub.ServerReflectionInfo(iter([asked]), timeout=5)
        names = {service.name for service in answer.list_services_response.service}
        asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol="liftedinit.billing.v1.Query")
        [answer] = stub.ServerReflectionInfo(iter([asked]), timeout=5)
    assert {"liftedinit.billing.v1.Query", "liftedinit.sku.v1.Query", "cosmos.tx.v1beta1.Service"} <= names
    assert answer.file_descriptor_response.file_descriptor_proto


def pings(address, count):
    """Send HTTP/2 pings without any call; the reason of the GOAWAY that came, or None when all were answered."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, b""))
        for number in range(count):
            connection.sendall(frame(PING, struct.pack(">Q", number)))
            kind = flags = 0
            while (kind, flags) != (PING, 1):
                head = read(connection, 9)
                kind, flags = head[3], head[4]
                body = read(connection, int.from_bytes(head[:3], "big"))
                if kind == GOAWAY:
                    return body[8:].decode()
    return None


def frame(kind, body):
    return len(body).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + body


def read(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the server ended the connection without a word"
        data += part
    return data


def test_who_pings_too_often_is_sent_away(devchain):
    assert pings(devchain.grpc, 10) == "too_many_pings"


def test_pings_can_be_allowed():
    with simulated.run(limits=simulated.Limits(keepalive_policy=False)) as chain:
        assert pings(chain.grpc, 10) is None


def test_a_block_takes_no_more_gas_than_its_limit(ask):
    with simulated.run(block_mode="manual", limits=simulated.Limits(block_gas_limit=1_000_000)) as chain:
        first, second = chain.create_leases(2)
        wallet = Wallet.of(chain, "provider")
        too_much = wallet.ack([first], gas=1_000_001)
        text = "tx gas limit 1000001 exceeds block max gas 1000000: out of gas"
        refused = chain.broadcast(too_much)
        assert (refused.codespace, refused.code, refused.log) == ("sdk", 11, text)
        with pytest.raises(grpc.RpcError) as caught:
            ask(
                chain,
                "cosmos.tx.v1beta1.Service/Simulate",
                tx_pb2.SimulateRequest(tx_bytes=too_much),
                tx_pb2.SimulateResponse,
            )
        assert caught.value.code() == grpc.StatusCode.UNKNOWN
        assert caught.value.details().startswith(text)
        chain.broadcast(wallet.ack([first], gas=600_000))
        chain.broadcast(wallet.ack([second], gas=600_000, sequence=wallet.sequence + 1))
        chain.produce_block()
        assert (chain.state_of(first), chain.state_of(second)) == (2, 1)
        chain.produce_block()
        assert chain.state_of(second) == 2


def test_limits_must_make_sense():
    with pytest.raises(ValueError, match="must be positive"):
        simulated.start(limits=simulated.Limits(keep_blocks=0))
