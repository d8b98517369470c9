"""C70 to C79: teardown, retained data, restore."""

from typing import Any

from backends.check.bench import Bench, Reply, fresh_lease
from backends.check.cases import Skipped, case, expect


@case("C70", "teardown of a ready lease", destructive=True)
def _ready(bench: Bench) -> None:
    lease = bench.ready()
    reply = bench.expect(200, bench.deprovision(lease), "deprovision")
    expect(reply.json == {"status": "ok"}, f"the answer is {reply.brief}")
    if bench.listener is not None:
        said = bench.callbacks(lease, 2)[1].fields
        expect(said.get("status") == "deprovisioned", f"the callback says {said.get('status')!r}")
        if bench.options.retention is not None:
            expect(bool(said.get("retained")) is bench.options.retention, f"retained is {said.get('retained')!r}")
    bench.until(lambda: not bench.listed(lease), "the row is still there")
    if bench.listener is not None:
        bench.no_more(lease, 2)


@case("C71", "teardown again, and of an unknown lease", destructive=True)
def _again(bench: Bench) -> None:
    lease = bench.ready()
    for what in (lease, lease, fresh_lease()):
        bench.expect(200, bench.deprovision(what), "deprovision")


@case("C72", "teardown while it is being made", destructive=True)
def _overtaken(bench: Bench) -> None:
    body = bench.order()
    lease = str(body["lease_uuid"])
    bench.expect(202, bench.call("/provision", body), "provision")
    was = bench.status(lease)
    bench.expect(200, bench.deprovision(lease), "deprovision")
    bench.until(lambda: not bench.listed(lease), "the row is still there")
    bench.ready()
    expect(not bench.listed(lease), "the lease came back")
    statuses = [one.fields.get("status") for one in bench.listener.of(lease)] if bench.listener is not None else []
    if was != "provisioning" or statuses[:2] == ["success", "deprovisioned"]:
        raise Skipped("it was ready before it could be torn down")
    expect("success" not in statuses, f"the callbacks are {statuses}")


@case("C73", "20 teardowns at once", destructive=True)
def _burst(bench: Bench) -> None:
    lease = bench.ready()
    replies = bench.at_once([lambda: bench.call("/deprovision", {"lease_uuid": lease})] * 20)
    statuses = sorted(reply.status for reply in replies)
    expect(set(statuses) <= {200, 409, 503} and 200 in statuses, f"they were answered {statuses}")
    bench.expect(200, bench.deprovision(lease), "one more")
    if bench.listener is not None:
        bench.callbacks(lease, 2)
        bench.no_more(lease, 2)


def _keeps(bench: Bench) -> None:
    if bench.options.retention is False:
        raise Skipped("the backend keeps no data")
    if bench.options.retention is None:
        raise Skipped("needs --retention on")


def _kept(bench: Bench) -> str:
    _keeps(bench)
    lease = bench.ready()
    bench.expect(200, bench.deprovision(lease), "deprovision")
    bench.until(lambda: bench.status(lease) == "retained", "the point read is not retained")
    return lease


def _retentions(bench: Bench) -> list[str]:
    page = bench.expect(200, bench.call("/retentions"), "retentions").json
    return [row["lease_uuid"] for row in page["retentions"]]


def _restore(bench: Bench, source: str, lease: str = "", **changes: Any) -> Reply:
    body = bench.order(lease, **changes)
    body.pop("payload", None)
    body["from_lease_uuid"] = source
    return bench.call("/restore", {name: value for name, value in body.items() if value != ""})


@case("C74", "a retained lease", destructive=True)
def _listed(bench: Bench) -> None:
    lease = _kept(bench)
    row = bench.row(lease)
    expect(row.get("retained_until", "0001") > "0002", f"retained_until is {row.get('retained_until')!r}")
    expect(row.get("items"), "the row tells no items")
    expect(lease in _retentions(bench), "it is not among the retentions")
    expect(not bench.listed(lease), "it is among the live provisions")


@case("C75", "restore into a new lease", destructive=True)
def _restored(bench: Bench) -> None:
    source, lease = _kept(bench), fresh_lease()
    bench.expect(202, _restore(bench, source, lease), "restore")
    if bench.listener is not None:
        said = bench.callbacks(lease, 1)[0].fields
        expect(said.get("status") == "success", f"the result is {said}")
    bench.until(lambda: bench.status(lease) == "ready", "the new lease never got ready")
    bench.until(lambda: source not in _retentions(bench), "the source is still retained")


@case("C76", "restores that are refused", destructive=True)
def _refused(bench: Bench) -> None:
    source = _kept(bench)
    target = bench.ready()
    two = [{"sku": bench.options.sku, "quantity": 2}]
    bench.expect(422, _restore(bench, fresh_lease()), "an unknown source")
    bench.expect(422, _restore(bench, source, tenant="manifest1other"), "another tenant")
    bench.expect(400, _restore(bench, source, items=two), "another shape")
    bench.expect(409, _restore(bench, source, target), "a target that exists", code="already_provisioned")
    bench.expect(400, _restore(bench, ""), "no source", error="from_lease_uuid is required")
    expect(source in _retentions(bench), "a refused restore has used the data up")


@case("C77", "two restores from one source at once", destructive=True)
def _two(bench: Bench) -> None:
    source = _kept(bench)
    replies = bench.at_once([lambda: _restore(bench, source)] * 2)
    statuses = sorted(reply.status for reply in replies)
    expect(statuses[0] == 202 and statuses[1] in (409, 422), f"they were answered {statuses}")


@case("C78", "a smaller disk that does not fit", destructive=True)
def _demote(bench: Bench) -> None:
    small = str(bench.need("small_sku", "--small-sku SKU"))
    source = _kept(bench)
    reply = _restore(bench, source, items=[{"sku": small, "quantity": 1}])
    bench.expect(422, reply, "a smaller disk", code="demote_exceeds_tier")
    expect(source in _retentions(bench), "the data are not kept any more")


@case("C79", "restore where nothing is kept")
def _nothing(bench: Bench) -> None:
    if bench.options.retention:
        raise Skipped("the backend keeps data")
    bench.expect(422, _restore(bench, fresh_lease()), "restore")
