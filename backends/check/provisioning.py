"""C20 to C34: making a lease's workload."""

from backends.check.bench import Bench
from backends.check.cases import Skipped, case, current_only, expect

_PROVISION = "/provision"


@case("C20", "requests that cannot be carried out", destructive=True)
def _bad(bench: Bench) -> None:
    url = "invalid callback_url: "
    for what, body, error in (
        ("broken JSON", b"{", "invalid request body"),
        ("no lease", bench.order(lease_uuid=None), "lease_uuid is required"),
        ("no callback", bench.order(callback_url=None), "callback_url is required"),
        ("a bad scheme", bench.order(callback_url="ftp://h/x"), url + "scheme must be http or https"),
        ("no host", bench.order(callback_url="http:///x"), url + "host is required"),
        (
            "link-local",
            bench.order(callback_url="http://169.254.169.254/x"),
            url + "link-local addresses are not allowed",
        ),
        ("no items", bench.order(items=None), "items is required"),
    ):
        bench.expect(400, bench.call(_PROVISION, body), what, error=error)


@case("C21", "an unknown field", destructive=True)
def _unknown_field(bench: Bench) -> None:
    bench.expect(202, bench.call(_PROVISION, bench.order(future={"x": 1})), "an unknown field")


@case("C22", "unknown SKU, bad manifest, forbidden image", destructive=True)
def _refused(bench: Bench) -> None:
    options = bench.options
    tries = [("a bad manifest", bench.order(manifest=options.bad_manifest), "invalid_manifest")]
    if options.unknown_sku:
        items = [{"sku": options.unknown_sku, "quantity": 1}]
        tries.append(("an unknown SKU", bench.order(items=items), "unknown_sku"))
    if options.forbidden_manifest:
        tries.append(("a forbidden image", bench.order(manifest=options.forbidden_manifest), "image_not_allowed"))
    for what, body, code in tries:
        bench.expect(400, bench.call(_PROVISION, body), what, code=code)
        expect(not bench.listed(str(body["lease_uuid"])), f"{what} has left a row")
    if bench.listener is not None:
        for _, body, _code in tries:
            bench.no_more(str(body["lease_uuid"]), 0)
    if len(tries) < 3:
        raise Skipped("a bad manifest is refused; the rest needs --unknown-sku and --forbidden-manifest")


def _items(bench: Bench, *lines: tuple[int, str]) -> list[dict[str, object]]:
    rows = [{"sku": bench.options.sku, "quantity": count, "service_name": name} for count, name in lines]
    return [{key: value for key, value in row.items() if value != ""} for row in rows]


@case("C23", "quantities out of range", destructive=True)
def _quantities(bench: Bench) -> None:
    for lines in ([(-1, "")], [(1025, "")], [(600, "a"), (600, "b")]):
        body = bench.order(items=_items(bench, *lines))
        bench.expect(400, bench.call(_PROVISION, body), f"quantities {[count for count, _ in lines]}")


@case("C24", "named and unnamed items mixed, two unnamed", destructive=True)
def _names(bench: Bench) -> None:
    for lines in ([(1, "a"), (1, "")], [(1, ""), (1, "")]):
        body = bench.order(items=_items(bench, *lines))
        what = f"services {[name for _, name in lines]}"
        bench.expect(400, bench.call(_PROVISION, body), what, code="invalid_manifest")


@case("C25", "a good request: 202 at once, then exactly one success on the exact URL", destructive=True)
def _good(bench: Bench) -> None:
    bench.need_listener()
    body = bench.order()
    lease = str(body["lease_uuid"])
    reply = bench.expect(202, bench.call(_PROVISION, body), "provision")
    expect(reply.seconds < 5, f"the 202 took {reply.seconds:.1f} s")
    first = bench.callbacks(lease, 1)[0]
    expect(first.fields.get("status") == "success", f"the result is {first.fields.get('status')!r}")
    wanted = str(body["callback_url"]).partition("/callbacks/")[2]
    expect(first.target.partition("/callbacks/")[2] == wanted, "the callback went to another URL")
    bench.no_more(lease, 1)


@case("C26", "while it is being made", destructive=True)
def _meanwhile(bench: Bench) -> None:
    body = bench.order()
    lease = str(body["lease_uuid"])
    bench.expect(202, bench.call(_PROVISION, body), "provision")
    info = bench.call(f"/info/{lease}")
    rows = bench.listed(lease)
    status = rows[0]["status"] if rows else ""
    if status != "provisioning":
        expect(status == "ready", f"the row is {status!r}")
        raise Skipped("it was ready before it could be seen")
    bench.expect(404, info, "connection details of what is not ready")


@case("C27", "once it is ready", destructive=True)
def _ready(bench: Bench) -> None:
    lease = bench.ready(items=_items(bench, (2, "")))
    info = bench.expect(200, bench.call(f"/info/{lease}"), "info").json
    instances = info.get("instances") or []
    ports = [port for one in instances for port in (one.get("ports") or {}).values()]
    expect(all(isinstance(port.get("host_port"), str) for port in ports), "host_port is no string")
    expect(len(instances) == 2, f"{len(instances)} instances for a quantity of 2")


@case("C28", "a single unnamed item is the service app", destructive=True)
def _app(bench: Bench) -> None:
    lease = bench.ready()
    names = [item.get("service_name") for item in bench.row(lease).get("items") or []]
    expect(names == ["app"], f"the row's items are called {names}")
    services = list(bench.expect(200, bench.call(f"/info/{lease}"), "info").json.get("services") or {})
    expect(services == ["app"], f"/info has the services {services}")
    keys = list(bench.expect(200, bench.call(f"/logs/{lease}"), "logs").json or {})
    expect(all(key.startswith("app/") for key in keys), f"/logs has the keys {keys}")


@case("C29", "the same provision again", destructive=True)
def _again(bench: Bench) -> None:
    bench.need_listener()
    body = bench.order()
    lease = str(body["lease_uuid"])
    bench.expect(202, bench.call(_PROVISION, body), "the first")
    bench.expect(409, bench.call(_PROVISION, body), "the second")
    bench.callbacks(lease, 1)
    bench.expect(409, bench.call(_PROVISION, body), "one when it is up")
    expect(len(bench.listed(lease)) == 1, "there is more than one row")
    bench.no_more(lease, 1)


@case("C30", "20 identical requests at once", destructive=True)
def _burst(bench: Bench) -> None:
    bench.need_listener()
    body = bench.order()
    lease = str(body["lease_uuid"])
    replies = bench.at_once([lambda: bench.call(_PROVISION, body)] * 20)
    statuses = sorted(reply.status for reply in replies)
    expect(statuses == [202] + [409] * 19, f"they were answered {statuses}")
    bench.callbacks(lease, 1)
    bench.no_more(lease, 1)


@case("C31", "more than there is room for", destructive=True)
def _too_much(bench: Bench) -> None:
    quantity = int(bench.need("too_much", "--too-much QUANTITY"))
    before = bench.call("/stats").json.get("allocated_cpu_cores")
    body = bench.order(items=[{"sku": bench.options.sku, "quantity": quantity}])
    bench.expect(503, bench.call(_PROVISION, body), f"a quantity of {quantity}")
    expect(not bench.listed(str(body["lease_uuid"])), "a refused lease has a row")
    expect(bench.call("/stats").json.get("allocated_cpu_cores") == before, "the refused lease counts as allocated")


def _fail(bench: Bench) -> dict[str, object]:
    manifest = bench.need("failing_manifest", "--failing-manifest FILE")
    bench.need_listener()
    body = bench.order(manifest=manifest)
    bench.expect(202, bench.call(_PROVISION, body), "provision")
    return body


@case("C32", "an image that fails", destructive=True)
def _failing(bench: Bench) -> None:
    body = _fail(bench)
    lease = str(body["lease_uuid"])
    said = bench.callbacks(lease, 1)[0].fields
    text = str(said.get("error", ""))
    expect(said.get("status") == "failed", f"the result is {said.get('status')!r}")
    expect(text and "/" not in text and len(text.encode()) <= 256, f"the callback's text is {text!r}")
    row = bench.row(lease)
    expect(row.get("status") == "failed" and row.get("reason"), f"the row is {row}")
    expect(row.get("message") == text, f"the row says {row.get('message')!r}, the callback {text!r}")
    expect(bench.call(f"/logs/{lease}").status in (200, 404), "/logs does not answer")


@case("C33", "a failed lease provisioned again keeps its count of failures", destructive=True)
def _retry(bench: Bench) -> None:
    body = _fail(bench)
    lease = str(body["lease_uuid"])
    bench.callbacks(lease, 1)
    before = bench.row(lease).get("fail_count", 0)
    expect(before >= 1, f"fail_count is {before} after a failure")
    bench.expect(202, bench.call(_PROVISION, bench.order(lease)), "the second provision")
    bench.callbacks(lease, 2)
    after = bench.row(lease).get("fail_count", 0)
    expect(after >= before, f"fail_count went from {before} to {after}")


current_only("C34", "callback URLs that are no pair")
