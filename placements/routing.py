"""Which backend gets a lease. Pure: candidates, loads and counts in, names out; it counts what it has just given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

RATIO_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend as routing sees it, in configuration order."""

    name: str
    skus: frozenset[str]
    is_default: bool = False
    takes_work: bool = True
    """False while it is fenced, drained or retired."""


@dataclass(frozen=True, slots=True)
class Load:
    """A backend's own figures; ``cpu_ratio`` None means that they are no usable signal."""

    cpu_ratio: float | None
    disk_withheld: bool = False


K = TypeVar("K")


@dataclass(slots=True)
class Routed:
    """What routing gave: a backend for each lease that got one, and how it came to it."""

    given: dict[object, str] = field(default_factory=dict)
    unplaced: set[object] = field(default_factory=set)
    fallbacks: int = 0
    """Choices made without any usable load figure."""


def candidates_for(
    sku: str, backends: Sequence[Candidate], *, eligible: frozenset[str] | None = None
) -> list[Candidate]:
    """Backends that may take this SKU, in configuration order; the fall-back when none lists it; empty: none may.

    ``eligible`` narrows the choice to these names. A SKU that only backends which take no work serve has no fall-back:
    the lease waits for one of them.
    """

    def may(one: Candidate) -> bool:
        return one.takes_work and (eligible is None or one.name in eligible)

    serving = [one for one in backends if sku in one.skus]
    usable = [one for one in serving if may(one)]
    if usable:
        return usable
    if serving and not any(one.takes_work for one in serving):
        return []
    fallback = next((one for one in backends if one.is_default), backends[0] if backends else None)
    return [fallback] if fallback is not None and may(fallback) else []


def undecided(skus: Iterable[str], backends: Sequence[Candidate]) -> set[str]:
    """Names of the backends whose load matters: those that compete for at least one of these SKUs."""
    names: set[str] = set()
    for sku in set(skus):
        found = candidates_for(sku, backends)
        if len(found) > 1:
            names.update(one.name for one in found)
    return names


def route(
    wanted: Mapping[K, str],
    backends: Sequence[Candidate],
    *,
    loads: Mapping[str, Load],
    in_flight: Mapping[str, int],
    turn: Callable[[], int],
    eligible: frozenset[str] | None = None,
) -> Routed:
    """Give each lease (key to SKU) a backend: least loaded, then fewest in flight, then in turn.

    ``loads`` holds the backends whose figures could be read; ``in_flight`` counts open operations per backend before
    this batch. ``turn`` yields the shared counter, asked only where a tie remains. Equal figures are equal within 1e-9.
    """
    routed = Routed()
    flying: Counter[str] = Counter(in_flight)
    found: dict[str, list[Candidate]] = {}
    for key, sku in wanted.items():
        if sku not in found:
            found[sku] = candidates_for(sku, backends, eligible=eligible)
        choice = _choose(found[sku], loads, flying, turn, routed)
        if choice is None:
            routed.unplaced.add(key)
        else:
            flying[choice] += 1
            routed.given[key] = choice
    return routed


def _choose(
    candidates: Sequence[Candidate],
    loads: Mapping[str, Load],
    flying: Mapping[str, int],
    turn: Callable[[], int],
    routed: Routed,
) -> str | None:
    if not candidates:
        return None
    if len(candidates) == 1:
        return candidates[0].name
    ratios = {one.name: load.cpu_ratio for one in candidates if (load := loads.get(one.name)) is not None}
    usable = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if not usable:
        routed.fallbacks += 1
        return candidates[turn() % len(candidates)].name
    with_disk = {name: ratio for name, ratio in usable.items() if not loads[name].disk_withheld}
    usable = with_disk or usable
    least = min(usable.values())
    tied = [one.name for one in candidates if usable.get(one.name, float("inf")) <= least + RATIO_TOLERANCE]
    fewest = min(flying.get(name, 0) for name in tied)
    tied = [name for name in tied if flying.get(name, 0) == fewest]
    return tied[0] if len(tied) == 1 else tied[turn() % len(tied)]
