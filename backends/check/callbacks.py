"""C80 to C93: what comes back, as the listener sees it."""

from pathlib import Path
from urllib.parse import urlsplit

from backends.check.bench import Bench
from backends.check.cases import Failed, case, current_only, expect
from backends.check.listener import Heard
from fred import signing


def is_signed(bench: Bench, one: Heard) -> bool:
    """Whether the main key signed this callback: method, full target as the backend was told it, and body."""
    prefix = urlsplit(bench.need_listener().base).path.rstrip("/")
    target = one.target if one.target.startswith(f"{prefix}/") else prefix + one.target
    key = bench.options.key
    return signing.verify(one.signature, keys=[key], now=one.at, method="POST", target=target, body=one.body).ok


@case("C80", "the signature of a callback", destructive=True)
def _signature(bench: Bench) -> None:
    bench.need_listener()
    one = bench.callbacks(bench.ready(), 1)[0]
    expect(one.signature, "the callback is not signed")
    expect(is_signed(bench, one), "the callback's signature does not verify")


@case("C81", "a listener that answers 500 twice", destructive=True)
def _repeated(bench: Bench) -> None:
    listener = bench.need_listener()
    body = bench.order()
    lease = str(body["lease_uuid"])
    listener.answers[lease] = [500, 500]
    bench.expect(202, bench.call("/provision", body), "provision")
    found = bench.callbacks(lease, 3)
    expect(len({one.body for one in found}) == 1, "the bodies differ")


def _after_restart(bench: Bench) -> None:
    listener = bench.need_listener()
    if "restart" not in bench.options.hooks:
        bench.hook("restart")
    body = bench.order()
    lease = str(body["lease_uuid"])
    listener.always[lease] = 503
    bench.expect(202, bench.call("/provision", body), "provision")
    bench.callbacks(lease, 1)
    bench.hook("restart")
    tried = len(listener.of(lease))
    del listener.always[lease]

    def is_taken() -> bool:
        return any(one.told == 200 for one in listener.heard if one.lease == lease)

    listener.wait(is_taken, seconds=45)
    expect(is_taken(), f"the callback never came again ({len(listener.of(lease)) - tried} tries after the restart)")
    bench.until(lambda: bench.status(lease) == "ready", "the lease is not ready after the restart")


@case("C82", "a listener that was down, after a restart of the backend", destructive=True, seconds=180)
def _down(bench: Bench) -> None:
    _after_restart(bench)


@case("C83", "a listener that refuses one lease for ever", destructive=True)
def _stuck(bench: Bench) -> None:
    listener = bench.need_listener()
    body = bench.order()
    listener.always[str(body["lease_uuid"])] = 503
    bench.expect(202, bench.call("/provision", body), "provision")
    bench.callbacks(str(body["lease_uuid"]), 1)
    bench.ready()
    del listener.always[str(body["lease_uuid"])]


current_only("C84", "results and observations of one lease in order")
current_only("C85", "a listener that redirects")
current_only("C86", "a listener that hangs")


@case("C87", "a backend killed between effect and delivery", destructive=True, seconds=180)
def _killed(bench: Bench) -> None:
    _after_restart(bench)


@case("C88", "a workload that dies", destructive=True)
def _died(bench: Bench) -> None:
    bench.need_listener()
    if "kill-workload" not in bench.options.hooks:
        bench.hook("kill-workload")
    lease = bench.ready()
    bench.hook("kill-workload", LEASE_UUID=lease)
    said = bench.callbacks(lease, 2)[1].fields
    found = (said.get("status"), said.get("error"))
    expect(found == ("failed", "container exited unexpectedly"), f"the callback is {found}")
    bench.no_more(lease, 2)


@case("C89", "no id of a URL in the backend's log", destructive=True)
def _quiet(bench: Bench) -> None:
    path = bench.need("log_file", "--log-file PATH")
    lease = bench.ready()
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Failed(f"the log cannot be read: {error.strerror}") from None
    marks = [mark for mark in bench.marks.values() if mark in text]
    expect(not marks, f"the log holds {len(marks)} ids, for example that of {lease}")


current_only("C90", "one identity on every answer")
current_only("C91", "a path bound to another identity")
current_only("C92", "a query with another identity")
current_only("C93", "the same identity after a restart")
