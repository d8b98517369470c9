"""Which address a request comes from."""

import ipaddress

import pytest

from fred.clients import bucket_key, client_ip


def found(trusted, peer, *forwarded, real=None):
    networks = [ipaddress.ip_network(one.strip()) for one in trusted.split(",") if one.strip()]
    headers = [(b"x-forwarded-for", line.encode()) for line in forwarded]
    if real is not None:
        headers.append((b"x-real-ip", real.encode()))
    scope = {"client": (peer, 5), "headers": headers}
    return client_ip(scope, lambda address: any(ipaddress.ip_address(address) in network for network in networks))


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "real", "client"),
    [
        ("", "192.168.1.1", "203.0.113.9", "203.0.113.8", "192.168.1.1"),
        ("10.0.0.0/8", "192.168.1.1", "203.0.113.9", None, "192.168.1.1"),
        ("127.0.0.1", "127.0.0.1", "203.0.113.9, 70.41.3.18, 150.172.238.178", None, "150.172.238.178"),
        ("10.0.0.1, 10.0.0.2", "10.0.0.2", "1.2.3.4, 203.0.113.50, 10.0.0.1", None, "203.0.113.50"),
        ("10.0.0.0/8, 127.0.0.1", "127.0.0.1", "10.0.0.1, 10.0.0.2", None, "127.0.0.1"),
        ("192.168.1.1", "192.168.1.1", "not-an-ip, 10.0.0.1", None, "10.0.0.1"),
        ("127.0.0.1", "127.0.0.1", None, " 203.0.113.100 ", "203.0.113.100"),
        ("", "::1", None, None, "::1"),
        # ours
        ("10.0.0.0/8", "10.0.0.5", "1.1.1.1, 2.2.2.2, 10.0.0.9", None, "2.2.2.2"),
        ("10.0.0.0/8", "10.0.0.5", "10.0.0.9", "3.3.3.3", "3.3.3.3"),
        ("10.0.0.0/8", "10.0.0.5", "10.0.0.9", "junk", "10.0.0.5"),
        ("10.0.0.0/8", "10.0.0.5", "2.2.2.2, 1.2.3.4:567, [::1], fe80::1%eth0, junk", None, "2.2.2.2"),
        ("10.0.0.0/8", "10.0.0.5", "", "3.3.3.3", "3.3.3.3"),
        ("10.0.0.0/8", "::ffff:10.0.0.5", "2.2.2.2, ::ffff:10.0.0.9", None, "2.2.2.2"),
        ("10.0.0.0/8", "10.0.0.5", "2001:db8::7", None, "2001:db8::7"),
        ("10.0.0.0/8", "", "2.2.2.2", None, ""),
    ],
)
def test_ta32_the_client_behind_our_proxies(trusted, peer, forwarded, real, client):
    lines = () if forwarded is None else (forwarded,)
    assert found(trusted, peer, *lines, real=real) == client


def test_all_lines_of_the_header_count_together():
    assert found("10.0.0.0/8", "10.0.0.5", "1.1.1.1, 2.2.2.2", "10.0.0.9", "10.0.0.8") == "2.2.2.2"
    assert found("10.0.0.0/8", "10.0.0.5", "1.1.1.1", "2.2.2.2, 10.0.0.8") == "2.2.2.2"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("", "unknown"),
        ("fe80::1%eth0", "unknown"),
        ("unix:", "unknown"),
    ],
)
def test_clients_are_counted_by_address_and_ipv6_by_its_64(address, key):
    assert bucket_key(address) == key
