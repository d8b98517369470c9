"""Running the checks, one after the other, each with an end; and the report."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from backends.check import auth, callbacks, closing, maintenance, provisioning, reads
from backends.check.bench import Bench, Options
from backends.check.cases import Case, Failed, Skipped, Verdict, ordered
from backends.check.listener import Listener

CHAPTERS = (auth, provisioning, reads, maintenance, closing, callbacks)
"""The modules whose import enters the checks."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one check ended, and why if not well."""

    case: str
    title: str
    result: Verdict
    reason: str
    seconds: float


def _within(check: Case, bench: Bench) -> tuple[Verdict, str]:
    """The check in a thread of its own: one that hangs is left behind, and fails."""
    found: list[tuple[Verdict, str]] = []

    def run() -> None:
        try:
            check.check(bench)
            found.append((Verdict.PASSED, ""))
        except Skipped as skipped:
            found.append((Verdict.SKIPPED, str(skipped)))
        except Failed as failed:
            found.append((Verdict.FAILED, str(failed)))
        except Exception as error:  # noqa: BLE001 (an answer of a shape nobody foresaw is a failure of the backend)
            found.append((Verdict.FAILED, f"an answer has an unexpected shape: {type(error).__name__}: {error}"))

    thread = threading.Thread(target=run, name=f"check-{check.id}", daemon=True)
    thread.start()
    thread.join(check.seconds)
    return found[0] if found else (Verdict.FAILED, f"it did not end within {check.seconds:g} s")


def results(
    options: Options, *, destructive: bool, listener: Listener | None, only: Collection[str] = ()
) -> Iterator[Result]:
    """Make the checks; what was made is removed at the end, a failure of which is reported as the case `cleanup`."""
    bench = Bench(options, listener)
    for check in ordered():
        if only and check.id not in only:
            continue
        started = time.monotonic()
        verdict, reason = Verdict.SKIPPED, "needs --destructive"
        if destructive or not check.destructive:
            verdict, reason = _within(check, bench)
        yield Result(check.id, check.title, verdict, reason, round(time.monotonic() - started, 3))
    left = bench.clean() if destructive else []
    if left:
        text = f"{len(left)} leases could not be removed: {', '.join(left[:5])}"
        yield Result("cleanup", "the leases of this run are removed", Verdict.FAILED, text, 0.0)


def report(options: Options, found: Sequence[Result]) -> dict[str, Any]:
    """Everything as JSON."""
    counts = Counter(one.result.value for one in found)
    return {
        "url": options.url,
        "contract": options.dialect.value,
        "counts": {verdict.value: counts[verdict.value] for verdict in Verdict},
        "results": [{**asdict(one), "result": one.result.value} for one in found],
    }


def show(found: Iterator[Result], write: Callable[[str], object]) -> list[Result]:
    """A line for each as it ends; returns all."""
    kept = []
    for one in found:
        kept.append(one)
        line = f"{one.case:<8} {one.result.value:<8} {one.title}"
        write(f"{line}: {one.reason}" if one.reason else line)
    counts = Counter(one.result for one in kept)
    write(", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict))
    return kept
