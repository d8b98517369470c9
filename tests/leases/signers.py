"""A house with sub-signers: their keys come from the provider's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models.functions import Now
from pydantic import SecretStr

from fred.conf.values import Coin
from fred.models import PeriodicTask
from leases import lanes, subsigners
from leases.chain.devchain.keys import MNEMONIC_PROVIDER
from leases.chain.devchain.running import RunningDevchain
from leases.chain.messages import DELEGATED_TYPES
from leases.models import ChainAction, ChainTx, Signer
from tests.leases.house import ours_on_chain
from tests.waiting import wait_until

MINIMUM, TOP_UP = 10_000_000, 50_000_000


def have_sub_signers(settings: Any, count: int, **changes: Any) -> None:
    """So many sub-signers in the settings, as a start of the processes reads them."""
    coins = {
        "sub_signer_min_balance": Coin(MINIMUM, "umfx"),
        "sub_signer_top_up_amount": Coin(TOP_UP, "umfx"),
    }
    settings.FRED = settings.FRED.model_copy(update={"sub_signer_count": count, **coins, **changes})
    settings.HOUSE = settings.HOUSE.model_copy(update={"fred_mnemonic": SecretStr(MNEMONIC_PROVIDER)})


def address_of(chain: RunningDevchain, number: int) -> str:
    """The address of sub-signer 1, 2, …; 0 is the provider's."""
    return chain.keys["provider" if number == 0 else f"provider-sub-{number}"].address


def look_after() -> None:
    """The task of the clock, its time come."""
    PeriodicTask.objects.filter(name="sub-signers").update(due_at=Now())
    subsigners.run_due()


def settle(*, passes: int = 30) -> None:
    """Look after the sub-signers until nothing more is under way."""

    def is_settled() -> bool:
        look_after()
        make_due()
        lanes.run()
        busy = ChainTx.objects.filter(state__in=["signed", "broadcast"]).exists()
        return not busy and PeriodicTask.objects.get(name="sub-signers").due_at > later()

    wait_until(is_settled, timeout=passes)


def later() -> Any:
    """A moment after which a pass counts as the usual next one."""
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) + timedelta(seconds=10)


def make_due() -> None:
    """As if every pause of lanes were over."""
    ChainTx.objects.filter(due_at__isnull=False).update(due_at=Now())
    ChainAction.objects.filter(due_at__isnull=False).update(due_at=Now())
    Signer.objects.filter(due_at__isnull=False).update(due_at=Now())


def usable() -> list[int]:
    """Indexes of the sub-signers that may sign."""
    rows = Signer.objects.filter(role="sub_signer", usable=True).order_by("index")
    return [index for index in rows.values_list("index", flat=True) if index is not None]


def grants(chain: RunningDevchain) -> set[tuple[str, str]]:
    """What the provider granted on the chain: grantee and type."""
    ours = address_of(chain, 0)
    return chain.call(lambda: {(who, kind) for giver, who, kind in chain.node.chain.state.grants if giver == ours})


def grant(chain: RunningDevchain, *numbers: int, kinds: Sequence[str] = DELEGATED_TYPES) -> None:
    """Grants that were made before."""
    from leases.chain.devchain.records import Grant

    def work() -> None:
        state = chain.node.chain.state
        for number in numbers:
            for kind in kinds:
                entry = Grant(address_of(chain, 0), address_of(chain, number), kind, 0)
                state.set(state.grants, (entry.granter, entry.grantee, kind), entry)
            state.account(address_of(chain, number))

    chain.call(work)


def give(chain: RunningDevchain, amounts: dict[int, int]) -> None:
    """Money for the fees of sub-signers."""
    for number, amount in amounts.items():
        if amount:
            chain.mint(address_of(chain, number), {"umfx": amount})


def balance(chain: RunningDevchain, number: int) -> int:
    """What a signer owns, in umfx."""
    from leases import node

    return node.client().balance(address_of(chain, number), "umfx")


def errands(chain: RunningDevchain, kind: str) -> list[list[Any]]:
    """The messages of the provider's own transactions of a type on the chain, for each one."""
    found = [[message for _, message in result.tx.messages] for result in ours_on_chain(chain)]
    return [messages for messages in found if messages and messages[0].DESCRIPTOR.name == kind]


def signed_by(chain: RunningDevchain) -> dict[str, int]:
    """How many of our transactions on the chain each address signed."""
    counts: dict[str, int] = {}
    for tx in ChainTx.objects.filter(state="included", kind__in=["ack", "reject", "close"]):
        counts[tx.signer_id] = counts.get(tx.signer_id, 0) + 1
    return counts


def run_until_done() -> None:
    """Run lanes until no action is open."""

    def is_done() -> bool:
        make_due()
        lanes.run()
        return not ChainAction.objects.filter(state__in=["queued", "in_tx"]).exists()

    wait_until(is_done)


def everything_for(chain: RunningDevchain, *numbers: int) -> set[tuple[str, str]]:
    """All grants that these sub-signers need: grantee and type."""
    return {(address_of(chain, number), kind) for number in numbers for kind in DELEGATED_TYPES}


def questions(chain: RunningDevchain) -> int:
    """How often grants were asked for."""
    return sum(number for method, number in chain.counts().items() if method.endswith("authz.v1beta1.Query/Grants"))
