"""A simulated chain as this deployment's chain, and rows about its leases."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models.functions import Now

from fred.conf import ProviderConfig
from leases import sql
from leases.chain.client import ExactLease
from leases.chain.devchain.running import RunningDevchain
from leases.models import ChainAction, ChainTx, Lease
from leases.node import client


def config_of(chain: RunningDevchain, config: ProviderConfig, **changes: Any) -> ProviderConfig:
    """The settings of a provider whose chain is this one."""
    return config.model_copy(
        update={
            "grpc_endpoint": chain.grpc,
            "websocket_url": chain.websocket,
            "provider_uuid": UUID(chain.provider_uuid),
            "chain_id": chain.chain_id,
            "tx_poll_interval": timedelta(milliseconds=20),
            **changes,
        }
    )


def read(uuids: Sequence[UUID]) -> None:
    """Read leases exactly and store what was read; their looks are over. A lease without an answer ends the test."""
    found = client().leases(uuids)
    silent = {str(uuid): answer for uuid, answer in found.items() if not isinstance(answer, ExactLease)}
    assert not silent, f"the chain at {client().endpoint} gave no lease for {silent}"
    reads = [one for one in found.values() if isinstance(one, ExactLease)]
    sql.store_reads([(one.lease, one.height) for one in reads], exact=True)
    Lease.objects.filter(uuid__in=uuids).update(due_at=None)


def pending(chain: RunningDevchain, number: int) -> list[UUID]:
    """New leases on the chain, read."""
    uuids = [UUID(one) for one in chain.create_leases(number)]
    read(uuids)
    return uuids


def want(verb: str, uuids: Sequence[UUID], *, reason: str = "", **columns: Any) -> list[ChainAction]:
    """What a look decided: one wish per lease, due now."""
    epochs = dict(Lease.objects.filter(uuid__in=uuids).values_list("uuid", "epoch"))
    ends = {} if verb == "ack" else {"valid_until": Now() + timedelta(seconds=60)}
    return ChainAction.objects.bulk_create(
        [
            ChainAction(
                lease_id=uuid, verb=verb, reason=reason, due_at=Now(), lease_epoch=epochs[uuid], **{**ends, **columns}
            )
            for uuid in uuids
        ]
    )


def states(chain: RunningDevchain, uuids: Sequence[UUID]) -> list[int]:
    """States on the chain."""
    return [chain.state_of(str(uuid)) for uuid in uuids]


def stored(uuids: Sequence[UUID]) -> list[int | None]:
    """States as stored, in the order asked for."""
    found = dict(Lease.objects.filter(uuid__in=uuids).values_list("uuid", "chain_state"))
    return [found[uuid] for uuid in uuids]


def action_states(verb: str | None = None) -> dict[str, int]:
    """How many actions are in each state."""
    counts: dict[str, int] = {}
    for action in ChainAction.objects.filter(**({"verb": verb} if verb else {})):
        counts[action.state] = counts.get(action.state, 0) + 1
    return counts


def sent(chain: RunningDevchain) -> list[ChainTx]:
    """Stored transactions, oldest first."""
    return list(ChainTx.objects.order_by("id"))


def ours_on_chain(chain: RunningDevchain) -> list[Any]:
    """Included transactions that the provider's key signed."""
    return [result for result in chain.txs() if not result.tx.trusted]


def messages_on_chain(chain: RunningDevchain) -> list[list[Any]]:
    """The messages of those transactions, for each one."""
    return [[message for _, message in result.tx.messages] for result in ours_on_chain(chain)]


def environment_of(chain: RunningDevchain, **more: str) -> dict[str, str]:
    """The environment of a process of this provider, with the database of this test."""
    database = connection.settings_dict
    address = f"{database['USER']}:{database['PASSWORD']}@{database['HOST']}:{database['PORT']}"
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "fred.settings",
        "DATABASE_URL": f"postgres://{address}/{database['NAME']}",
        "PROVIDER_GRPC_ENDPOINT": chain.grpc,
        "PROVIDER_WEBSOCKET_URL": chain.websocket,
        "PROVIDER_PROVIDER_UUID": chain.provider_uuid,
        "PROVIDER_TX_POLL_INTERVAL": "20ms",
        **more,
    }
