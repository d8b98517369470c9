"""The three generations of the ledger that a provider meets, as traits of the simulated chain.

A is ledger 2.1.0, B what the published clients are built with, C the newest development state. Each trait names what
differs; the code asks for traits, never for names.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from leases.chain.devchain.errors import Refused
from leases.chain.proto import billing_pb2 as pb

MAX_LIST = 100


@dataclass(frozen=True, slots=True)
class Profile:
    """Traits of one generation.

    `cursors`: a withdrawal by provider has a cursor and visits ACTIVE leases only; the amounts to withdraw come in
    pages. Without it there is a limit, CLOSED leases are visited too, and the rest is only announced.
    `domain_providers`: events of custom domains name the provider.
    `strict`: hard acknowledge deadline, reservations that other leases cannot use, stricter pages, more in events.
    """

    name: str
    cursors: bool
    domain_providers: bool
    strict: bool


PROFILES = {
    "A": Profile("A", cursors=False, domain_providers=False, strict=False),
    "B": Profile("B", cursors=True, domain_providers=True, strict=False),
    "C": Profile("C", cursors=True, domain_providers=True, strict=True),
}


def profile(name: str) -> Profile:
    """The profile of this name; raises ValueError."""
    found = PROFILES.get(name)
    if found is None:
        raise ValueError(f"unknown profile {name}; known are {', '.join(PROFILES)}")
    return found


def check_form(traits: Profile, message: Message) -> None:
    """What only some generations refuse by the form of a message."""
    if isinstance(message, pb.MsgWithdraw) and message.key and not traits.cursors:
        raise Refused("sdk", 2, 'errUnknownField "liftedinit.billing.v1.MsgWithdraw": {TagNum: 5, WireType:"bytes"}')
    if isinstance(message, pb.MsgUpdateParams):
        _check_params(traits, message.params)


def _check_params(traits: Profile, params: pb.Params) -> None:
    suffixes = list(params.reserved_domain_suffixes)
    if len(set(suffixes)) < len(suffixes):
        raise Refused("billing", 1, "reserved_domain_suffixes holds a suffix twice")
    for suffix in suffixes:
        labels = suffix.removeprefix(".").split(".")
        if not suffix.startswith(".") or not all(labels) or len(labels) < (1 if traits.strict else 2):
            raise Refused("billing", 1, f"{suffix} is no domain suffix")
    if traits.strict and max(len(params.allowed_list), len(suffixes)) > MAX_LIST:
        raise Refused("billing", 1, f"a list of parameters has more than {MAX_LIST} entries")
