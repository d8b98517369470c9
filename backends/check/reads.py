"""C40 to C48: lists, pages, reads of one lease, load."""

from typing import Any
from uuid import UUID

from backends.check.bench import Bench, Reply, fresh_lease
from backends.check.cases import Skipped, case, expect
from backends.check.maintenance import update


def _lookup(bench: Bench, *leases: str) -> Reply:
    return bench.call("/provisions?" + "&".join(f"lease_uuid={lease}" for lease in leases))


@case("C40", "lookups")
def _lookups(bench: Bench) -> None:
    many = [fresh_lease() for _ in range(101)]
    for count in (1, 100):
        found = bench.expect(200, _lookup(bench, *many[:count]), f"{count} ids").json
        expect(found.get("provisions") == [], f"unknown ids give {found}")
    text = "lease_uuid count must be between 1 and 100"
    bench.expect(400, _lookup(bench, *many), "101 ids", error=text)
    for bad in ("x", ""):
        bench.expect(400, _lookup(bench, bad), f"the id {bad!r}", error="invalid lease_uuid")


def _walk(bench: Bench, limit: int, *, after_page: Any = None) -> list[str]:
    found: list[str] = []
    token = ""
    for number in range(10_000):
        target = f"/provisions?limit={limit}" + (f"&continue={token}" if token else "")
        page = bench.expect(200, bench.call(target), f"page {number + 1}").json
        rows = [row["lease_uuid"] for row in page["provisions"]]
        expect(len(rows) <= limit, f"a page of {len(rows)} rows for a limit of {limit}")
        expect(not found or not rows or rows[0] > found[-1], "rows are not in order")
        found.extend(rows)
        following = page.get("continue", "")
        if not following:
            return found
        expect(rows and following == rows[-1] and following > token, f"the token {following!r} is not the last row's")
        token = following
        if after_page is not None:
            after_page(token)
            after_page = None
    raise AssertionError


@case("C41", "pages", destructive=True)
def _pages(bench: Bench) -> None:
    for _ in range(5):
        bench.ready()
    everything = [row["lease_uuid"] for row in bench.call("/provisions").json["provisions"]]
    expect(everything == sorted(set(everything)), "the full list is not in order, or has duplicates")
    expect(_walk(bench, 2) == everything, "the pages together are not the full list")
    exact = bench.call(f"/provisions?limit={len(everything)}").json
    expect(len(exact["provisions"]) == len(everything) and not exact.get("continue"), "a last full page has a token")


@case("C42", "limits and tokens")
def _limits(bench: Bench) -> None:
    some = fresh_lease()
    for path in ("/provisions", "/retentions"):
        for raw in ("abc", "-1"):
            text = f'invalid limit "{raw}": must be a non-negative integer'
            bench.expect(400, bench.call(f"{path}?limit={raw}"), f"{path} limit {raw}", error=text)
        for raw in ("0", "5001", "9" * 18):
            bench.expect(200, bench.call(f"{path}?limit={raw}"), f"{path} limit {raw}")
        text = 'invalid continue token "x": must be a UUID'
        bench.expect(400, bench.call(f"{path}?limit=1&continue=x"), f"{path} continue x", error=text)
        for query in (f"continue={some}", f"limit=0&continue={some}"):
            reply = bench.call(f"{path}?{query}")
            bench.expect(400, reply, "a token without a limit", error="continue requires a positive limit")
        last = str(UUID(int=2**128 - 1))
        for form in (last.upper(), f"%7B{last}%7D", last):
            page = bench.expect(200, bench.call(f"{path}?limit=2&continue={form}"), f"{path} after {form}").json
            noun = path[1:]
            expect(page.get(noun) == [] and not page.get("continue"), f"{path} past the end: {page}")


@case("C43", "the token's lease is removed between pages", destructive=True)
def _vanishing(bench: Bench) -> None:
    mine = sorted(bench.ready() for _ in range(4))
    seen = _walk(bench, 1, after_page=bench.deprovision)
    expect(len(seen) == len(set(seen)), "a row came twice")
    expect(set(mine[1:]) <= set(seen), "a row was left out")


@case("C44", "no retained leases are an empty list")
def _retentions(bench: Bench) -> None:
    page = bench.expect(200, bench.call("/retentions"), "retentions").json
    expect(isinstance(page.get("retentions"), list), f"retentions is {page.get('retentions')!r}")


@case("C45", "an unknown lease")
def _unknown(bench: Bench) -> None:
    lease = fresh_lease()
    for noun in ("info", "provisions", "logs", "releases"):
        bench.expect(404, bench.call(f"/{noun}/{lease}"), f"/{noun}", error="not provisioned")


@case("C46", "how many lines", destructive=True)
def _tail(bench: Bench) -> None:
    lease = bench.ready()
    for raw, status in (("0", 400), ("-1", 400), ("x", 400), ("10000", 200), ("10001", 400), ("", 200)):
        target = f"/logs/{lease}?tail={raw}" if raw else f"/logs/{lease}"
        bench.expect(status, bench.call(target), f"tail {raw or 'absent'}")


@case("C47", "versions after a provision and an update", destructive=True)
def _releases(bench: Bench) -> None:
    lease = bench.ready()
    update(bench, lease, bench.options.other_manifest)
    rows = bench.expect(200, bench.call(f"/releases/{lease}"), "releases").json
    expect([row["version"] for row in rows] == [1, 2], f"the versions are {[row['version'] for row in rows]}")
    statuses = [row["status"] for row in rows]
    expect(statuses == ["superseded", "active"], f"the versions are {statuses}")


@case("C48", "load", destructive=True)
def _load(bench: Bench) -> None:
    def allocated() -> float:
        found = bench.expect(200, bench.call("/stats"), "stats").json
        return float(found.get("allocated_cpu_cores", 0))

    total = float(bench.call("/stats").json.get("total_cpu_cores", 0))
    if total <= 0:
        raise Skipped("the backend does not track its load")
    before = allocated()
    body = bench.order()
    bench.expect(202, bench.call("/provision", body), "provision")
    expect(total >= allocated() > before, "the load has not grown with the admission")
    expect(bench.deprovision(str(body["lease_uuid"])).status == 200, "deprovision")
    bench.until(lambda: allocated() == before, "the load has not come back")
