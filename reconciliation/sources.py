"""Where a look reads from: the chain and the backends, and what is remembered of their silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from uuid import UUID

import structlog
from django.conf import settings

from backends import load as backend_load
from backends import targets
from backends.client import BackendClient
from backends.contract import LoadStats, ProvisionInfo
from backends.contract import Unknown as BackendUnknown
from fred.budget import at_most
from fred.due import BATCH
from leases import node
from leases.chain.client import Absent, ChainLease, Doubt, ExactLease, LeasePage, Unknown
from leases.chain.errors import ChainError
from leases.status import LeaseState
from reconciliation import command_reads
from reconciliation import facts_types as f
from reconciliation.command_facts import MaintenanceFact

log = structlog.get_logger(__name__)

T = TypeVar("T")

SILENCE_S = 5.0
"""How long a source that did not answer is left alone before one probe asks again."""
PROBE_S = 5.0
"""How long the probe of a look may take: with a read and a listing that hung before it, less than a look's claim."""
NOBODY = UUID("00000000-0000-7000-8000-000000000000")
"""No lease, well formed: that the chain has none such is an answer of the service that reads leases."""
POINT_READS = 16
"""Point reads of one look that are under way at a time."""


class ChainReads(Protocol):
    """The part of the chain client that looks use."""

    def leases(self, lease_uuids: Sequence[UUID]) -> Mapping[UUID, ExactLease | Absent | Unknown]:
        """Read each of these exactly."""

    def list_leases(self, provider_uuid: UUID, state: LeaseState | None = None) -> Iterator[LeasePage]:
        """List a provider's leases."""


@dataclass(slots=True)
class Silence:
    """What this process remembers of a source that did not answer. One log line per incident, one probe at a time."""

    name: str
    clock: Callable[[], float] = time.monotonic
    until: float = float("-inf")
    is_on: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def holds(self) -> bool:
        """Whether the source is to be left alone now. Past the time one caller gets False and is the probe."""
        with self.lock:
            if not self.is_on:
                return False
            if self.clock() < self.until:
                return True
            self.until = self.clock() + SILENCE_S
            return False

    def began(self, reason: str) -> None:
        """The source did not answer."""
        with self.lock:
            if not self.is_on:
                log.warning("source silent", source=self.name, reason=reason)
            self.is_on, self.until = True, self.clock() + SILENCE_S

    def over(self) -> None:
        """The source answered."""
        with self.lock:
            if self.is_on:
                log.info("source answers again", source=self.name)
            self.is_on = False


class Sources:
    """Chain and backends of this deployment, as looks read them.

    `read_s` limits an exact read, `probe_s` the question after it whether the chain answers for other leases: for those
    whose own answer cannot wait as long as the chain client does.
    """

    def __init__(
        self, chain: ChainReads | None = None, *, read_s: float | None = None, probe_s: float = PROBE_S
    ) -> None:
        self._chain = chain
        self._read_s, self._probe_s = read_s, probe_s
        self.chain_silence = Silence("chain")
        self._backend_silence: dict[str, Silence] = {}

    @property
    def chain(self) -> ChainReads:
        """The chain client, of the settings unless one was given."""
        return self._chain or node.client()

    def exact(self, uuids: Iterable[UUID]) -> dict[UUID, ExactLease | Absent | f.Unknown]:
        """Read these leases exactly. Silence of the chain is one incident: then all are `chain_silent`.

        An error for one lease while the chain answers for another is that lease's own fault (``is_own``). A node may
        make blocks and still refuse all that is asked about leases: that it has a newest block tells nothing.
        """
        wanted = sorted(set(uuids))
        if not wanted:
            return {}
        silent = f.Unknown("chain_silent")
        if self.chain_silence.holds():
            return dict.fromkeys(wanted, silent)
        found: dict[UUID, ExactLease | Absent | f.Unknown] = {}
        doubtful: set[UUID] = set()
        with at_most(self._read_s):
            answers = self.chain.leases(wanted)
        for uuid, answer in answers.items():
            if isinstance(answer, Unknown):
                if answer.doubt is Doubt.SILENT:
                    doubtful.add(uuid)
                reason = "chain_silent" if answer.doubt is Doubt.SILENT else f"chain_{answer.doubt}"
                found[uuid] = f.Unknown(reason, state=answer.state)
            else:
                found[uuid] = answer
        if doubtful:
            # One that was answered just now is asked for again: the node may have gone away in between.
            own = self._answers(next((uuid for uuid in wanted if uuid not in doubtful), NOBODY))
            for uuid in doubtful:
                found[uuid] = f.Unknown("chain_error", is_own=True) if own else silent
        else:
            self.chain_silence.over()
        return found

    def _answers(self, other: UUID = NOBODY) -> bool:
        """Whether the chain answers for this lease, which is none of those in doubt; its silence begins or ends."""
        with at_most(self._probe_s):
            read = self.chain.leases([other])[other]
        if isinstance(read, Unknown) and read.doubt is Doubt.SILENT:
            self.chain_silence.began(read.reason)
            return False
        self.chain_silence.over()
        return True

    def pending(self, provider: UUID, *, store: Callable[[Sequence[tuple[ChainLease, int]]], None]) -> bool:
        """Hand the provider's PENDING leases with the height of their page to ``store``, some hundred at a time.

        False when the chain did not name all of them. A walk that had to begin anew names some twice.
        """
        if self.chain_silence.holds():
            return False
        part: list[tuple[ChainLease, int]] = []
        try:
            for page in self.chain.list_leases(provider, LeaseState.PENDING):
                part.extend((lease, page.height) for lease in page.leases)
                if len(part) >= BATCH:
                    store(part)
                    part = []
            if self.chain_silence.is_on:  # lists may be answered while exact reads are not
                self._answers()
            is_whole = True
        except ChainError as error:
            self._answers()
            log.warning("listing not complete", reason=str(error))
            is_whole = False
        if part:
            store(part)
        return is_whole

    def silence_of(self, backend: str) -> Silence:
        """What is remembered of this backend."""
        return self._backend_silence.setdefault(backend, Silence(f"backend {backend}"))

    def answers(self, backend: str) -> bool:
        """Whether nothing is known of this backend being silent. Asks nobody."""
        silence = self.silence_of(backend)
        return not silence.is_on

    def point_reads(self, wanted: Mapping[UUID, str]) -> dict[UUID, f.PointFact]:
        """Ask backends for single leases (lease to backend), a few at a time; a silent backend is asked once."""
        return self._ask(wanted, self._point_read)

    def maintenance_reads(self, wanted: Mapping[UUID, str]) -> dict[UUID, MaintenanceFact | f.Absent | f.Unknown]:
        """The same for what backends show of restarts and updates."""
        return self._ask(wanted, self._maintenance_read)

    def _ask(self, wanted: Mapping[UUID, str], read: Callable[[UUID, BackendClient], T]) -> dict[UUID, T | f.Unknown]:
        found: dict[UUID, T | f.Unknown] = {}
        ask: dict[UUID, BackendClient] = {}
        for uuid, name in wanted.items():
            client = self.backend(name)
            if client is None:
                found[uuid] = f.Unknown("backend_unconfigured")
            elif self.silence_of(name).holds():
                found[uuid] = f.Unknown("backend_silent")
            else:
                ask[uuid] = client
        if ask:
            with ThreadPoolExecutor(max_workers=min(POINT_READS, len(ask))) as pool:
                found |= zip(ask, pool.map(read, ask, ask.values()), strict=True)
        return found

    def _point_read(self, uuid: UUID, client: BackendClient) -> f.PointFact:
        silence = self.silence_of(client.target.name)
        match client.provision_info(uuid):
            case BackendUnknown(reason=reason):
                silence.began(reason)
                return f.Unknown("backend_silent")
            case ProvisionInfo() as info:
                silence.over()
                if info.provider_uuid not in (None, provider_uuid()):
                    return f.Unknown("other_provider")
                return f.ProvisionFact(client.target.name, str(info.status), info.message)
            case _:
                silence.over()
                return f.Absent()

    def _maintenance_read(self, uuid: UUID, client: BackendClient) -> MaintenanceFact | f.Absent | f.Unknown:
        silence = self.silence_of(client.target.name)
        found = command_reads.read(uuid, client)
        if isinstance(found, f.Unknown) and not found.is_own:
            silence.began(found.reason)
        else:
            silence.over()
        return found

    def backend(self, name: str) -> BackendClient | None:
        """A client for a configured, unfenced backend, behind its circuit breaker."""
        return targets.client(name)

    def loads(self, names: Iterable[str]) -> dict[str, LoadStats]:
        """The load of each of these backends that answers, at most 2 s old, all asked at once within 2 s."""
        return backend_load.of(names)


def provider_uuid() -> UUID:
    """Who we are on chain."""
    uuid: UUID = settings.FRED.provider_uuid
    return uuid
