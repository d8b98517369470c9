"""Faults of listings: pages that come empty, and leases that leave a list between two of its pages."""

from __future__ import annotations

from google.protobuf.message import Message

from leases.chain.devchain.chain import Chain
from leases.chain.devchain.keys import AUTHORITY
from leases.chain.devchain.paging import Page
from leases.chain.devchain.records import PENDING
from leases.chain.proto import billing_pb2 as pb
from leases.chain.proto.pagination_pb2 import PageResponse


def disturb(chain: Chain, method: str, request: bytes, page: Page) -> Page:
    """The page as the rules in force want it. `method` is the full gRPC path of the listing."""
    if not chain.faults.all() or not page.keys:
        return page
    next_key = page.response.next_key.decode()
    if next_key and chain.faults.find("drop_page_row", method, request) is not None:
        _move_away(chain, next_key)
    return _emptied(chain, method, request, page)


def _emptied(chain: Chain, method: str, request: bytes, page: Page) -> Page:
    """Each page is shown empty once, with the key of its own first row."""
    rule = chain.faults.peek("short_page")
    if rule is None or not rule.fits(method, request):
        return page
    shown: list[str] = rule.parameters.setdefault("shown", [])
    first = page.keys[0]
    if first in shown:
        shown.remove(first)
        return page
    if chain.faults.find("short_page", method, request) is None:
        return page
    shown.append(first)
    return Page([], PageResponse(next_key=first.encode(), total=page.response.total))


def _move_away(chain: Chain, uuid: str) -> None:
    """End a lease in a block of its own: a PENDING one by its tenant, an ACTIVE one by the authority."""
    lease = chain.state.leases[uuid]
    message: Message
    if lease.state == PENDING:
        message = pb.MsgCancelLease(tenant=lease.tenant, lease_uuids=[uuid])
    else:
        message = pb.MsgCloseLease(sender=AUTHORITY, lease_uuids=[uuid])
    chain.submit_trusted([message])
    chain.produce()
