"""Walks and lookups: complete or nothing."""

import json
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from backends import paging
from backends.client import BackendClient
from backends.contract import BackendUnavailable, ProvisionList, Unknown
from fred import metrics
from tests.backends.client_reads import paged, read, row
from tests.backends.servers import LEASE, answer, peer, says, target, uuid_number


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param([([row(1), row(2)], str(uuid_number(2))), ([row(3)], None)], id="two pages"),
        pytest.param([([row(1)], str(uuid_number(1))), ([row(2), row(3)], None)], id="bc45 short page"),
        pytest.param([([row(1), row(2), row(3)], None)], id="bc46 everything at once"),
        pytest.param([([row(1), row(2), row(3)], str(uuid_number(3))), ([], "")], id="empty last page"),
    ],
)
def test_a_walk_has_all_rows(pages):
    """P10"""
    found, got = read(paged(pages), "provisions")
    assert found.complete
    assert [one.lease_uuid for one in found.items] == [uuid_number(n) for n in (1, 2, 3)]
    assert len(got) == len(pages)


def test_bc49_an_empty_backend_lists_nothing_and_that_is_complete():
    assert read(says(200, {"provisions": []}), "provisions")[0] == ProvisionList((), complete=True)
    found, got = read(says(200, {"retentions": []}), "retentions")
    assert (found.items, found.complete, got[0].target) == ((), True, "/retentions?limit=1000")


def test_retentions_of_either_dialect_are_read():
    rows = [{"lease_uuid": str(uuid_number(1))}, {"lease_uuid": str(uuid_number(2)), "tenant": "t"}]
    found, _ = read(paged([(rows, None)], "retentions"), "retentions")
    assert [(one.lease_uuid, one.tenant) for one in found.items] == [(uuid_number(1), ""), (uuid_number(2), "t")]


TOKEN = str(uuid_number(2))


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lambda _got: answer(200, f'{{"provisions":[],"continue":"{TOKEN}"}}'.encode()), id="bc44 stuck"),
        pytest.param(
            lambda got: (
                answer(500)
                if "continue" in got.target
                else answer(200, f'{{"provisions":[],"continue":"{TOKEN}"}}'.encode())
            ),
            id="bc47 second page fails",
        ),
        pytest.param(says(404, b""), id="bc29 404"),
        pytest.param(says(200, {}), id="no list"),
        pytest.param(says(200, {"provisions": None}), id="null"),
        pytest.param(says(200, b"null"), id="null body"),
        pytest.param(says(200, {"provisions": [{"lease_uuid": "x"}]}), id="row without a lease"),
        pytest.param(says(200, {"provisions": [{}]}), id="empty row"),
        pytest.param(says(200, b'{"provisions":['), id="truncated"),
        pytest.param(lambda _got: None, id="cut"),
    ],
)
def test_a_walk_that_fails_anywhere_fails_whole(script):
    """P10"""
    with peer(script) as server, pytest.raises(BackendUnavailable):
        BackendClient(target(server.url)).provisions()


def test_bc48_what_goes_between_two_pages_is_no_error():
    """P10: the row that the token names is gone, and so is one of the next page"""
    there = list(range(1, 7))

    def script(got):
        page = paging.parse(parse_qs(urlsplit(got.target).query))
        wanted = [n for n in there if page.after is None or uuid_number(n) > page.after]
        rows, following = paging.cut(wanted, replace(page, limit=2), key=uuid_number)
        if page.after is None:
            there.remove(2)
            there.remove(3)
        body = {"provisions": [row(n) for n in rows], **({"continue": following} if following else {})}
        return answer(200, json.dumps(body).encode())

    found, _ = read(script, "provisions")
    assert (found.complete, [one.lease_uuid for one in found.items]) == (
        True,
        [uuid_number(n) for n in (1, 2, 4, 5, 6)],
    )


def test_bc44_the_error_names_the_fault():
    script = lambda _got: answer(200, f'{{"provisions":[],"continue":"{TOKEN}"}}'.encode())  # noqa: E731
    with peer(script) as server, pytest.raises(BackendUnavailable, match="non-advancing continue token"):
        BackendClient(target(server.url)).provisions()


def test_a_page_over_its_cap_fails_the_walk():
    with peer(says(200, b" " * (1024 * 1024 + 1))) as server, pytest.raises(BackendUnavailable, match="too large"):
        BackendClient(target(server.url)).retentions()


def test_bc49_a_walk_is_counted_once():
    labels = {"backend": "b-walk", "operation": "list_provisions", "status": "success"}
    count = metrics.BACKEND_REQUESTS.labels(**labels)._value.get
    before = count()
    pages = [([row(n)], str(uuid_number(n))) for n in range(1, 5)]
    read(paged([*pages, ([], None)]), "provisions", name="b-walk")
    assert count() == before + 1


def test_lookup_asks_sorted_and_discards_an_answer_with_strangers():
    """P11"""
    found, got = read(says(200, {"provisions": [row(1)]}), "lookup", [uuid_number(2), uuid_number(1)])
    assert [one.lease_uuid for one in found] == [uuid_number(1)]
    assert got[0].target == f"/provisions?lease_uuid={uuid_number(1)}&lease_uuid={uuid_number(2)}"
    assert isinstance(read(says(200, {"provisions": [row(3)]}), "lookup", [uuid_number(1)])[0], Unknown)


def test_bc29_lookup_of_an_older_backend_may_say_404():
    assert read(says(404, b""), "lookup", [LEASE])[0] == ()


@pytest.mark.parametrize("number", [0, 101])
def test_bc51_lookup_takes_1_to_100_leases(number):
    with peer() as server:
        with pytest.raises(ValueError, match=f"invalid uuid count: {number}"):
            BackendClient(target(server.url)).lookup([uuid_number(n) for n in range(number)])
        assert server.got == []
