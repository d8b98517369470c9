"""Requests that offer to go on in another protocol: nobody here takes the offer, and they are answered as any other."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.fred.served import echo, served


@pytest.fixture(scope="module")
def server():
    with served(echo) as one:
        yield one


OFFER = (
    b"Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
)
"""What clients that would rather speak HTTP/2 send with their first request, also with one that has a body."""


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        pytest.param(b"Content-Length: 5\r\n", b"hello", id="length"),
        pytest.param(b"Transfer-Encoding: chunked\r\n", b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", id="chunks"),
    ],
)
@pytest.mark.parametrize("parts", [1, 2, 40], ids=["at once", "in halves", "in pieces"])
def test_the_body_of_a_request_that_offers_another_protocol_is_read(server, fields, body, parts):
    request = b"POST /x HTTP/1.1\r\nHost: x\r\n" + OFFER + fields + b"\r\n" + body
    size = -(-len(request) // parts)
    with server.connect() as line:
        line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):  # the connection goes on
            for start in range(0, len(request), size):
                line.send(request[start : start + size])
            assert line.answer().body == b"5 /x"
        line.send(request + b"GET /y HTTP/1.1\r\nHost: x\r\n\r\n" + request)
        assert [line.answer().body for _ in range(3)] == [b"5 /x", b"0 /y", b"5 /x"]


def test_a_body_that_is_awaited_is_asked_for_beside_an_offer_of_another_protocol(server):
    with server.connect() as line:
        line.send(b"POST /x HTTP/1.1\r\nHost: x\r\n" + OFFER + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert line.answer(head_only=True).status == 100
        line.send(b"hello")
        assert line.answer().body == b"5 /x"


def test_a_tunnel_that_is_asked_for_with_a_body_and_an_offer_is_answered(server):
    with server.connect() as line:
        line.send(b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n" + OFFER + b"Content-Length: 5\r\n\r\nhello")
        assert line.answer().status in {200, 400}


def test_as_many_offers_as_one_packet_holds_are_read(server):
    """Each has a parser of its own; they are no deeper in each other than one."""
    request = b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\na"
    with server.connect() as line:
        sending = threading.Thread(target=line.send, args=(request * 1500,))
        sending.start()
        assert {line.answer().body for _ in range(1500)} == {b"1 /x"}
        sending.join()
