"""Which sequence a signer uses next: the chain's word, unless this house knows better."""

from __future__ import annotations

import structlog

from leases import lane_sql
from leases.chain.client import Account, ChainClient
from leases.chain.codes import expected_sequence

log = structlog.get_logger("leases.lanes")


def account_of(chain: ChainClient, address: str) -> tuple[Account, int | None]:
    """The account with the sequence to sign with, and that sequence alone when it is not the chain's committed one.

    A node that has just refused our last transaction names the sequence it wants; a node that still shows the sequence
    of our own last transaction lags behind. Raises what `ChainClient.account` raises.
    """
    account = chain.account(address)
    used, refused = lane_sql.last_sequence(address)
    named = expected_sequence(*refused) if refused else None
    if named is None and used is not None and account.sequence == used:
        named = used + 1
    if named is None:
        if used is not None and account.sequence > used + 1:
            log.warning("lane.key_used_elsewhere", signer=address, ours=used, sequence=account.sequence)
        return account, None
    return Account(account.address, account.number, named, account.height), named
