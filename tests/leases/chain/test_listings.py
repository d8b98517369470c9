from __future__ import annotations

import itertools
import time

import grpc
import pytest

from leases.chain.cosmos import LARGE_PAGE, MAX_LISTING_STARTS
from leases.chain.errors import (
    ChainUnavailable,
    ListingIncomplete,
)
from leases.chain.proto import billing_pb2
from leases.status import LeaseState
from tests.leases.chain.node import (
    LEASE,
    LISTING,
    OURS,
    At,
    Refusal,
    lease_row,
    uuids,
)


def _rows(listed, **changes):
    return [lease_row(uuid=str(uuid), **changes) for uuid in listed]


def _paged(pages, *, heights=None):
    """Answers page n+1 to the key of page n; notes the requests."""
    requests = []

    def answer(request):
        asked = billing_pb2.QueryLeasesByProviderRequest.FromString(request)
        requests.append(asked)
        number = int(asked.pagination.key or b"0")
        rows = pages[number]
        said = billing_pb2.QueryLeasesByProviderResponse(leases=rows)
        said.pagination.SetInParent()
        if number + 1 < len(pages):
            said.pagination.next_key = str(number + 1).encode()
        return At(said, heights[len(requests) - 1]) if heights else said

    return answer, requests


def test_a_listing_walks_its_pages(node, client):
    """CH-82"""
    wanted = uuids(6)
    pages = [_rows(wanted[:3]), _rows(wanted[3:5]), _rows(wanted[5:])]
    node.answers[LISTING], requests = _paged(pages)
    found = list(client.list_leases(OURS, LeaseState.ACTIVE))
    assert [lease.uuid for page in found for lease in page.leases] == wanted
    assert {page.height for page in found} == {39}
    assert [request.pagination.key for request in requests] == [b"", b"1", b"2"]
    assert [request.pagination.limit for request in requests] == [100, LARGE_PAGE, LARGE_PAGE]
    assert {request.state_filter for request in requests} == {2}


def test_a_listing_without_paging_has_one_page(node, client):
    """CH-82"""
    node.answers[LISTING] = billing_pb2.QueryLeasesByProviderResponse(leases=_rows(uuids(2)))
    [page] = client.list_leases(OURS)
    assert len(page.leases) == 2


def test_an_empty_listing_is_complete(node, client):
    node.answers[LISTING] = billing_pb2.QueryLeasesByProviderResponse()
    [page] = client.list_leases(OURS, LeaseState.PENDING)
    assert page.leases == ()


def test_a_failing_page_fails_the_listing(node, client):
    """CH-82"""
    first = billing_pb2.QueryLeasesByProviderResponse(leases=_rows(uuids(1)))
    first.pagination.next_key = b"1"
    answers = iter([first, Refusal(grpc.StatusCode.UNAVAILABLE, "down")])
    node.answers[LISTING] = lambda _: next(answers)
    pages = client.list_leases(OURS, LeaseState.PENDING)
    assert len(next(pages).leases) == 1
    with pytest.raises(ChainUnavailable, match="failed to query PENDING leases: UNAVAILABLE: down"):
        next(pages)


def test_a_cut_listing_is_walked_again(node, client):
    """CH-85"""
    wanted = uuids(3)
    first = billing_pb2.QueryLeasesByProviderResponse(leases=_rows(wanted[:2]))
    first.pagination.next_key = b"x"
    last = billing_pb2.QueryLeasesByProviderResponse(leases=_rows(wanted[2:]))
    answers = iter([first, billing_pb2.QueryLeasesByProviderResponse(), first, last])
    node.answers[LISTING] = lambda _: next(answers)
    found = {lease.uuid for page in client.list_leases(OURS) for lease in page.leases}
    assert found == set(wanted)


def test_a_listing_that_is_always_cut_is_incomplete(node, client):
    """CH-85"""
    first = billing_pb2.QueryLeasesByProviderResponse(leases=_rows(uuids(2)))
    first.pagination.next_key = b"x"
    answers = itertools.cycle([first, billing_pb2.QueryLeasesByProviderResponse()])
    node.answers[LISTING] = lambda _: next(answers)
    with pytest.raises(ListingIncomplete):
        list(client.list_leases(OURS))
    assert node.calls["LeasesByProvider"] == 2 * MAX_LISTING_STARTS


def test_a_page_older_than_the_one_before_starts_the_walk_anew(node, client):
    wanted = uuids(4)
    pages = [_rows(wanted[:2]), _rows(wanted[2:])]
    node.answers[LISTING], requests = _paged(pages, heights=[50, 40, 51, 51])
    found = list(client.list_leases(OURS))
    assert [page.height for page in found] == [50, 51, 51]
    assert len(requests) == 4


def test_rows_that_cannot_be_read_are_named_not_lost(node, client):
    """CH-147"""
    good, odd, foreign = uuids(3)
    rows = [*_rows([good]), *_rows([odd], state=9), *_rows([foreign], provider_uuid=str(LEASE))]
    node.answers[LISTING] = billing_pb2.QueryLeasesByProviderResponse(leases=rows)
    [page] = client.list_leases(OURS)
    assert [lease.uuid for lease in page.leases] == [good]
    assert page.unreadable == (str(odd), str(foreign))


def test_a_listing_without_a_height_is_of_no_use(node, client):
    node.answers[LISTING] = At(billing_pb2.QueryLeasesByProviderResponse(), None)
    with pytest.raises(ChainUnavailable, match="names no height"):
        list(client.list_leases(OURS))


def test_ten_thousand_leases_are_read_quickly(node, client):
    wanted = uuids(10_000)
    pages = [_rows(wanted[:100])] + [_rows(wanted[start : start + 1000]) for start in range(100, 10_000, 1000)]
    node.answers[LISTING], _ = _paged(pages)
    started = time.process_time()
    assert sum(len(page.leases) for page in client.list_leases(OURS)) == 10_000
    assert time.process_time() - started < 3.0
