"""C50 to C60: restart, update, custom domains."""

from base64 import b64encode
from typing import Any

from backends.check.bench import Bench, fresh_lease
from backends.check.cases import Skipped, case, current_only, expect


def _settled(bench: Bench, lease: str, before: int) -> str:
    """The result of what was just begun; without a listener the status it comes to rest in."""
    if bench.listener is not None:
        return str(bench.callbacks(lease, before + 1)[before].fields.get("status"))
    bench.until(lambda: bench.status(lease) in ("ready", "failed"), "it never came to rest")
    return "success" if bench.status(lease) == "ready" and not bench.row(lease).get("reason") else "failed"


def _heard(bench: Bench, lease: str) -> int:
    return len(bench.listener.of(lease)) if bench.listener is not None else 0


def update(bench: Bench, lease: str, manifest: bytes) -> str:
    """Update and wait; returns how the result is called."""
    before = _heard(bench, lease)
    payload = b64encode(manifest).decode()
    bench.expect(202, bench.maintain("update", lease, payload=payload), "update")
    return _settled(bench, lease, before)


def _containers(bench: Bench, lease: str) -> list[str]:
    info = bench.expect(200, bench.call(f"/info/{lease}"), "info").json
    return [one.get("container_id", "") for one in info.get("instances") or []]


@case("C50", "restart of an unknown lease")
def _unknown(bench: Bench) -> None:
    bench.expect(404, bench.maintain("restart", fresh_lease()), "restart", error="not provisioned")


@case("C51", "restart of a ready lease", destructive=True)
def _restart(bench: Bench) -> None:
    lease = bench.ready()
    before = _heard(bench, lease)
    reply = bench.expect(202, bench.maintain("restart", lease), "restart")
    expect(reply.json.get("status") == "restarting", f"the answer is {reply.brief}")
    seen = bench.status(lease)
    expect(seen in ("restarting", "ready"), f"the row is {seen!r}")
    result = _settled(bench, lease, before)
    expect(result == "success", f"the result is {result!r}")
    bench.expect(200, bench.call(f"/info/{lease}"), "info afterwards")
    if bench.listener is not None:
        bench.no_more(lease, before + 1)


@case("C52", "restart while something is under way", destructive=True)
def _busy(bench: Bench) -> None:
    lease = bench.ready()
    payload = b64encode(bench.options.other_manifest).decode()
    unseen = []
    for verb, fields in (("restart", {}), ("update", {"payload": payload})):
        before = _heard(bench, lease)
        bench.expect(202, bench.maintain(verb, lease, **fields), verb)
        second = bench.maintain("restart", lease)
        if second.status == 202:
            unseen.append(verb)
            if bench.listener is not None:
                bench.callbacks(lease, before + 2)
        else:
            bench.expect(409, second, f"restart during {verb}", error="invalid state for restart")
        _settled(bench, lease, before)
        bench.until(lambda: bench.status(lease) == "ready", "it never got ready again")
    fresh = bench.order()
    bench.expect(202, bench.call("/provision", fresh), "provision")
    second = bench.maintain("restart", str(fresh["lease_uuid"]))
    if second.status == 202:
        unseen.append("provision")
    else:
        bench.expect(409, second, "restart during provision", error="invalid state for restart")
    if unseen:
        raise Skipped(f"over before a second call could come: {', '.join(unseen)}")


@case("C53", "updates without, with a bad and with a good payload", destructive=True)
def _update(bench: Bench) -> None:
    lease = bench.ready()
    bench.expect(400, bench.maintain("update", lease), "no payload", error="payload is required")
    bad = b64encode(bench.options.bad_manifest).decode()
    bench.expect(400, bench.maintain("update", lease, payload=bad), "a bad payload", code="invalid_manifest")
    expect(bench.status(lease) == "ready", "a refused update has touched the lease")
    result = update(bench, lease, bench.options.other_manifest)
    expect(result == "success", f"the result is {result!r}")


@case("C54", "an update to an image that fails", destructive=True)
def _failing(bench: Bench) -> None:
    manifest = bench.need("failing_manifest", "--failing-manifest FILE")
    lease = bench.ready()
    result = update(bench, lease, manifest)
    expect(result == "failed", f"the result is {result!r}")
    row = bench.row(lease)
    found = (row.get("status"), row.get("reason"))
    expect(found == ("ready", "UpdateFailed"), f"the row is {found}")
    bench.expect(200, bench.call(f"/info/{lease}"), "info of the version before")
    rows = bench.expect(200, bench.call(f"/releases/{lease}"), "releases").json
    statuses = [one["status"] for one in rows]
    expect(statuses == ["active", "failed"], f"the versions are {statuses}")


current_only("C55", "a maintenance command repeated at once")
current_only("C56", "a maintenance id used for something else")
current_only("C57", "the completion names its command")
current_only("C58", "a command older than the history")


def _domains(bench: Bench, lease: str, domain: str = "", **item: Any) -> None:
    items = [{"sku": bench.options.sku, "quantity": 1, "service_name": "app", "custom_domain": domain, **item}]
    body = {"lease_uuid": lease, "items": items}
    bench.expect((202, 204), bench.call("/reconcile_custom_domain", body), "custom domain")


@case("C59", "custom domains without a change, and of an unknown lease", destructive=True)
def _same(bench: Bench) -> None:
    lease = bench.ready()
    before = _containers(bench, lease)
    _domains(bench, lease)
    _domains(bench, lease)
    _domains(bench, fresh_lease(), "shop.example")
    expect(bench.status(lease) == "ready", "the lease was touched")
    expect(_containers(bench, lease) == before, "the containers are other ones")


@case("C60", "a changed custom domain", destructive=True)
def _changed(bench: Bench) -> None:
    lease = bench.ready()
    before, first = _heard(bench, lease), _containers(bench, lease)
    _domains(bench, lease, f"{lease[-8:]}.example.com")
    if bench.listener is None:
        bench.until(lambda: bench.status(lease) == "ready" and _containers(bench, lease) != first, "no restart")
    else:
        result = _settled(bench, lease, before)
        expect(result == "success", f"the result is {result!r}")
    second = _containers(bench, lease)
    expect(second != first, "the containers are the same ones")
    _domains(bench, lease, f"{lease[-8:]}.example.com")
    expect(bench.status(lease) == "ready" and _containers(bench, lease) == second, "it restarted without a change")
