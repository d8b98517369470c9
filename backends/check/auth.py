"""C1 to C11: who may ask."""

import time

from backends.check.bench import Bench, fresh_lease
from backends.check.callbacks import is_signed
from backends.check.cases import Skipped, case, expect

_CAP = 2 * 1024 * 1024


def _routes(lease: str) -> list[tuple[str, bytes | None]]:
    posts = ("provision", "deprovision", "restart", "update", "restore", "reconcile_custom_domain")
    reads = ("/provisions", "/retentions", *(f"/{noun}/{lease}" for noun in ("info", "provisions", "logs", "releases")))
    return [*((f"/{name}", b"{}") for name in posts), *((path, None) for path in reads)]


@case("C1", "each contract route without a signature")
def _unsigned(bench: Bench) -> None:
    for target, body in _routes(fresh_lease()):
        bench.expect(401, bench.call(target, body, header=""), target, error="missing signature")


@case("C2", "a wrong key")
def _wrong_key(bench: Bench) -> None:
    for target, body in _routes(fresh_lease()):
        method = "GET" if body is None else "POST"
        header = bench.header(method, target, body or b"", key="w" * 40)
        bench.expect(401, bench.call(target, body, header=header), target, error="invalid signature")


def _dated(bench: Bench, shift: int) -> int:
    header = bench.header("GET", "/retentions", b"", at=int(time.time()) + shift)
    return bench.call("/retentions", header=header).status


@case("C3", "timestamps 301 s and 299 s old")
def _old(bench: Bench) -> None:
    expect(_dated(bench, -302) == 401, "a signature over 5 minutes old is accepted")
    expect(_dated(bench, -297) != 401, "a signature under 5 minutes old is refused")


@case("C4", "timestamps 61 s and 59 s ahead")
def _ahead(bench: Bench) -> None:
    expect(_dated(bench, 63) == 401, "a signature over a minute ahead is accepted")
    expect(_dated(bench, 57) != 401, "a signature under a minute ahead is refused")


@case("C5", "a signature of another path, lease, method, query or body")
def _bound(bench: Bench) -> None:
    lease, other = fresh_lease(), fresh_lease()
    body = f'{{"lease_uuid":"{lease}"}}'.encode()
    tries = [
        ("another path", "/deprovision", body, bench.header("POST", "/provision", body)),
        ("another lease", f"/info/{lease}", None, bench.header("GET", f"/info/{other}", b"")),
        ("GET on POST", "/deprovision", body, bench.header("GET", "/deprovision", body)),
        ("another query", "/retentions?limit=2", None, bench.header("GET", "/retentions?limit=1", b"")),
        ("another body", "/deprovision", body, bench.header("POST", "/deprovision", body + b" ")),
    ]
    for what, target, sent, header in tries:
        bench.expect(401, bench.call(target, sent, header=header), what, error="invalid signature")


@case("C6", "upper-case hex")
def _upper(bench: Bench) -> None:
    head, _, mac = bench.header("GET", "/retentions", b"").partition(",sha256=")
    bench.expect(200, bench.call("/retentions", header=f"{head},sha256={mac.upper()}"), "upper-case hex")


@case("C7", "broken headers")
def _broken(bench: Bench) -> None:
    good = bench.header("GET", "/retentions", b"")
    head, _, tail = good.partition(",")
    for broken in (f"{good},x=1", f"{tail},{head}", f"t=abc,{tail}", f"{head}{tail}", "junk"):
        shape = broken.replace(tail[7:], "<mac>")
        bench.expect(401, bench.call("/retentions", header=broken), f"header {shape}", error="invalid signature")


@case("C8", "white space around both halves")
def _blanks(bench: Bench) -> None:
    head, _, tail = bench.header("GET", "/retentions", b"").partition(",")
    bench.expect(200, bench.call("/retentions", header=f" {head} , {tail} "), "white space")


@case("C9", "bodies of the cap and one more, with a garbage signature")
def _cap(bench: Bench) -> None:
    bench.expect(401, bench.call("/provision", b"x" * _CAP, header="junk"), "a body of 2 MiB")
    over = bench.call("/provision", b"x" * (_CAP + 1), header="junk")
    bench.expect(413, over, "a body of 2 MiB and one byte", error="request body too large")


@case("C10", "health and stats unsigned")
def _open(bench: Bench) -> None:
    for target in ("/health", "/stats"):
        expect(bench.call(target, header="").status != 401, f"{target} wants a signature")


@case("C11", "both keys of a rotation; callbacks have the main one", destructive=True)
def _rotation(bench: Bench) -> None:
    following = str(bench.need("key_next", "--key-next"))
    for key in (bench.options.key, following):
        header = bench.header("GET", "/retentions", b"", key=key)
        bench.expect(200, bench.call("/retentions", header=header), "a key of the rotation")
    if bench.listener is None:
        raise Skipped("both keys are accepted; callbacks need --listen")
    lease = bench.ready()
    expect(is_signed(bench, bench.callbacks(lease, 1)[0]), "the callback is not signed with the main key")
