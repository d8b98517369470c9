"""The mock as its control plane sees it: one result for each operation, the same connection data for the same lease."""

import asyncio
import json
import signal
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import pytest

from backends.client import (
    Accepted,
    AlreadyProvisioned,
    BackendClient,
    Done,
    classify_deprovision,
    classify_provision,
    deprovision_request,
    provision_request,
)
from backends.contract import Absent, LeaseItem, NotProvisioned, ProvisionStatus, ValidationRefused
from backends.mock import script
from backends.mock.connection import details
from backends.mock.driver import MockBackend, MockSettings
from backends.mock.records import delete_kept, load_kept
from backends.store import Store
from fred.http import Multi, fetch
from tests.backends.mock_process import process
from tests.backends.servers import SECRET, mock_agent, peer, served, spec, target, uuid_number
from tests.waiting import wait_until

CRASH = b'{"services":{"web":{"image":"registry.example/app:crash"}}}'
MISSING = b'{"image":"registry.example/app:missing"}'


class Rig:
    """A served mock and the listener of its callbacks."""

    def __init__(self, url, listener):
        self.target = target(url)
        self.client = BackendClient(self.target)
        self.listener = listener

    def provision(self, number=1, **changes):
        asked = spec(uuid_number(number), callback_url=f"{self.listener.url}/callbacks/provision?operation_id={number}")
        changed = {name: getattr(asked, name) for name in asked.__slots__} | changes
        return classify_provision(fetch(provision_request(self.target, type(asked)(**changed))))

    def deprovision(self, number=1):
        return classify_deprovision(fetch(deprovision_request(self.target, uuid_number(number))))

    def callbacks(self, count):
        wait_until(lambda: len(self.listener.got) >= count)
        return [json.loads(got.body) for got in self.listener.got]

    def status(self, number=1):
        return self.client.provision_info(uuid_number(number)).status


@contextmanager
def rig(**settings):
    with peer() as listener, served(mock_agent(**settings)) as url:
        yield Rig(url, listener)


def test_c25_a_good_provision_ends_with_one_success_on_its_exact_url():
    with rig() as mock:
        assert mock.provision() == Accepted()
        (body,) = mock.callbacks(1)
        assert body == {"lease_uuid": str(uuid_number(1)), "status": "success", "backend": "mock-backend"}
        assert mock.listener.got[0].target == "/callbacks/provision?operation_id=1"
        assert mock.status() is ProvisionStatus.READY
        assert len(mock.listener.got) == 1


def test_c26_while_it_is_provisioning_there_is_no_connection():
    with rig(delay=timedelta(hours=1)) as mock:
        assert mock.provision() == Accepted()
        assert mock.status() is ProvisionStatus.PROVISIONING
        assert mock.client.info(uuid_number(1)) == Absent()
        assert [row.status for row in mock.client.lookup([uuid_number(1)])] == [ProvisionStatus.PROVISIONING]


def test_c27_c28_instances_and_names():
    with rig() as mock:
        mock.provision()
        mock.callbacks(1)
        info = mock.client.info(uuid_number(1))
        assert list(info.services) == ["app"]
        assert [instance.instance_index for instance in info.instances] == [0, 1]
        assert all(port.host_port.isdigit() for one in info.instances for port in one.ports.values())
        row = mock.client.provision_info(uuid_number(1))
        assert (row.quantity, row.items, row.sku) == (2, (LeaseItem("sku-1", 2, "app"),), "sku-1")
        assert sorted(mock.client.logs(uuid_number(1))) == ["app/0", "app/1"]


@pytest.mark.parametrize(
    ("lease", "host", "token"),
    [
        ("0199c1d2-3e4f-7a5b-8c6d-7e8f90a1b2c3", "mock-e124e574.example.com", "d41c2d73eae1e6f0d6366e2fbda22429"),
        ("11111111-1111-4111-8111-111111111111", "mock-bd7662a5.example.com", "eeb41614e720d477abfcb2272e19a8a7"),
    ],
)
def test_bc128_connection_data_follow_from_the_lease(lease, host, token):
    items = (LeaseItem("s", 2, "web"), LeaseItem("t", 1, "db"))
    info = details(UUID(lease), backend="b", tenant="t", items=items, images={})
    assert (info.host, info.protocol) == (host, "https")
    assert info.metadata == {"backend": "b", "lease_uuid": lease, "tenant": "t", "sku": "s", "token": token}
    ports = [port.host_port for instance in info.instances for port in instance.ports.values()]
    assert len(set(ports)) == 3
    assert info.instances == (*info.services["db"].instances, *info.services["web"].instances)


def test_bc130_a_second_provision_is_refused_and_the_first_result_still_comes():
    """BC-113"""
    with rig(delay=timedelta(milliseconds=200)) as mock:
        assert mock.provision() == Accepted()
        again = mock.provision(callback_url=f"{mock.listener.url}/other")
        assert again == AlreadyProvisioned(f"lease already provisioned: {uuid_number(1)}")
        mock.callbacks(1)
        assert [got.target for got in mock.listener.got] == ["/callbacks/provision?operation_id=1"]


@pytest.mark.parametrize(
    ("payload", "reason", "error"),
    [(CRASH, "ContainerExited", "container exited during startup"), (MISSING, "ImagePullFailed", "image pull failed")],
)
def test_c32_c33_a_bad_image_fails_and_may_be_provisioned_again(payload, reason, error):
    """BC-113"""
    with rig() as mock:
        assert mock.provision(payload=payload) == Accepted()
        (body,) = mock.callbacks(1)
        assert (body["status"], body["error"]) == ("failed", error)
        row = mock.client.provision_info(uuid_number(1))
        assert (row.status, row.reason, row.message, row.fail_count) == (ProvisionStatus.FAILED, reason, error, 1)
        assert mock.client.info(uuid_number(1)) == Absent()
        assert mock.provision() == Accepted()
        assert mock.callbacks(2)[1]["status"] == "success"
        row = mock.client.provision_info(uuid_number(1))
        assert (row.status, row.reason, row.fail_count) == (ProvisionStatus.READY, "", 1)


def test_c30_twenty_at_once_make_one_workload_and_one_result():
    with rig() as mock:
        multi = Multi()
        for _ in range(20):
            asked = spec(uuid_number(1), callback_url=f"{mock.listener.url}/x")
            multi.submit(provision_request(mock.target, asked))
        answers = []
        wait_until(lambda: answers.extend(multi.poll(0.05)) or len(answers) == 20)
        multi.close()
        assert sorted(answer.status for answer in answers) == [202] + [409] * 19
        mock.callbacks(1)
        assert mock.deprovision() == Done()
        assert [body["status"] for body in mock.callbacks(2)] == ["success", "deprovisioned"]


def test_c70_a_teardown_removes_it_and_says_so_once():
    with rig() as mock:
        mock.provision()
        mock.callbacks(1)
        assert mock.deprovision() == Done()
        assert mock.client.provision_info(uuid_number(1)) == Absent()
        assert mock.deprovision() == Done()
        body = mock.callbacks(2)[1]
        assert body == {"lease_uuid": str(uuid_number(1)), "status": "deprovisioned", "backend": "mock-backend"}
        mock.provision(2)
        assert len(mock.callbacks(3)) == 3


def test_c72_a_teardown_overtakes_the_result():
    with rig(delay=timedelta(milliseconds=50)) as mock:
        mock.provision()
        assert mock.deprovision() == Done()
        mock.provision(2)
        done = mock.callbacks(2)
        assert {(body["lease_uuid"], body["status"]) for body in done} == {
            (str(uuid_number(1)), "deprovisioned"),
            (str(uuid_number(2)), "success"),
        }


def test_c74_retained_data_are_listed_apart():
    with rig(retention=timedelta(hours=1)) as mock:
        mock.provision()
        mock.callbacks(1)
        mock.deprovision()
        assert mock.callbacks(2)[1]["retained"] is True
        row = mock.client.provision_info(uuid_number(1))
        assert (row.status, row.tenant, row.items) == (
            ProvisionStatus.RETAINED,
            "manifest1tenant",
            (LeaseItem("sku-1", 2, "app"),),
        )
        assert row.retained_until > row.created_at
        assert [kept.lease_uuid for kept in mock.client.retentions().items] == [uuid_number(1)]
        assert mock.client.provisions().items == ()


def test_retained_data_expire():
    async def story():
        driver = MockBackend(MockSettings(retention=timedelta(hours=1)))
        await driver.provision(spec())
        await driver.deprovision(spec().lease_uuid)
        assert len((await driver.retentions()).items) == 1
        driver.clock.advance(timedelta(hours=2))
        assert (await driver.retentions()).items == ()
        with pytest.raises(NotProvisioned):
            await driver.provision_info(spec().lease_uuid)
        await driver.stop()

    asyncio.run(story())


def test_c48_load_follows_what_is_held():
    async def story():
        driver = MockBackend(MockSettings(total_cpu_cores=8, delay=timedelta(hours=1)))
        for number in range(3):
            await driver.provision(spec(uuid_number(number)))
        assert (await driver.stats()).cpu_ratio == 6 / 8
        await driver.deprovision(uuid_number(1))
        assert (await driver.stats()).cpu_ratio == 4 / 8
        await driver.stop()

    asyncio.run(story())


def test_bc132_chance_is_the_same_for_the_same_seed():
    def failing(seed):
        return {n for n in range(1000) if script.by_chance(uuid_number(n), fail_ratio=0.2, seed=seed).reason}

    assert failing(1) == failing(1) != failing(2)
    assert 120 < len(failing(1)) < 280
    assert {script.by_chance(uuid_number(n), fail_ratio=1.0, seed=0).reason for n in range(9)} == {"Internal"}


@pytest.mark.parametrize(
    ("payload", "names", "images", "fate"),
    [
        (CRASH, ["web"], {"web": "registry.example/app:crash"}, script.CRASH),
        (MISSING, ["app"], {"app": "registry.example/app:missing"}, script.MISSING),
        (
            b'{"services":{"b":{"image":"x:1"},"a":{"image":"y:2"}}}',
            ["a", "b"],
            {"a": "y:2", "b": "x:1"},
            script.SUCCESS,
        ),
        (b'{"image":"h:5000/crash"}', ["a", "b"], {"a": "h:5000/crash", "b": "h:5000/crash"}, script.SUCCESS),
        (b'{"image":"x:crash@sha256:00"}', ["a"], {"a": "x:crash@sha256:00"}, script.SUCCESS),
        (b'{"services":{"b":{"image":"x"}}}', ["a"], {}, script.SUCCESS),
    ],
)
def test_a_manifest_names_its_images_and_their_fate(payload, names, images, fate):
    manifest = script.parse(payload)
    assert (manifest.images(names), manifest.fate) == (images, fate)


@pytest.mark.parametrize(
    ("payload", "code", "text"),
    [
        (b"image: x", "invalid_manifest", "invalid manifest: not JSON"),
        (b"\xff", "invalid_manifest", "invalid manifest: not JSON"),
        (b"[" * 100_000, "invalid_manifest", "invalid manifest: not JSON"),
        (b"[]", "invalid_manifest", "invalid manifest: not a JSON object"),
        (b"null", "invalid_manifest", "invalid manifest: not a JSON object"),
        (b"{}", "invalid_manifest", "invalid manifest: image is required"),
        (b'{"image":""}', "invalid_manifest", "invalid manifest: image is required"),
        (b'{"services":[]}', "invalid_manifest", "invalid manifest: image is required"),
        (b'{"services":{"web":{}}}', "invalid_manifest", 'invalid manifest: service "web": image is required'),
        (b'{"services":{"web":5}}', "invalid_manifest", 'invalid manifest: service "web": image is required'),
        (b'{"image":"forbidden.example/a"}', "image_not_allowed", "image not allowed: forbidden.example/a"),
        (b'{"image":"Forbidden.example:5000/a"}', "image_not_allowed", "image not allowed: Forbidden.example:5000/a"),
    ],
)
def test_what_is_no_manifest_is_refused(payload, code, text):
    with pytest.raises(ValidationRefused) as refused:
        script.parse(payload)
    assert (refused.value.validation_code, str(refused.value)) == (code, text)


def test_a_store_that_fails_leaves_no_promise(tmp_path):
    async def story():
        driver = MockBackend(MockSettings(), Store(tmp_path / "a.sqlite"))
        driver.store.write(lambda connection: connection.execute("DROP TABLE provision")).result()
        with pytest.raises(Exception, match="no such table"):
            await driver.provision(spec())
        assert (await driver.provisions()).items == ()
        driver.store.close()

    asyncio.run(story())


def test_kept_rows_are_forgotten_by_lease(tmp_path):
    store = Store(tmp_path / "a.sqlite")
    with rig_with(store, retention=timedelta(hours=1)) as mock:
        mock.provision()
        mock.callbacks(1)
        mock.deprovision()
        (document,) = store.rows("SELECT document FROM retention")[0]
        assert load_kept(document).lease_uuid == uuid_number(1)
        store.write(delete_kept([uuid_number(1)])).result()
        assert store.rows("SELECT document FROM retention") == []


@contextmanager
def rig_with(store, **settings):
    with peer() as listener, served(mock_agent(store=store, **settings)) as url:
        yield Rig(url, listener)


def test_d2_a_restarted_mock_knows_everything(tmp_path):
    path = tmp_path / "a.sqlite"
    with rig_with(Store(path)) as mock:
        mock.provision(1)
        mock.provision(2, payload=CRASH)
        mock.callbacks(2)
        before = mock.client.provisions()
    with rig_with(Store(path), delay=timedelta(hours=1)) as mock:
        assert mock.client.provisions() == before
        mock.provision(3)
    with rig_with(Store(path)) as mock:
        wait_until(lambda: mock.status(3) is ProvisionStatus.READY)
        assert mock.deprovision(3) == Done()
    with rig_with(Store(path)) as mock:
        assert mock.client.provisions() == before


def test_the_agent_starts_without_any_setting_of_the_control_plane_and_survives_a_kill(tmp_path):
    state = str(tmp_path / "a.sqlite")
    with peer() as listener:
        with process(MOCK_BACKEND_STATE_PATH=state, MOCK_BACKEND_DELAY="1h", MOCK_BACKEND_NAME="m7") as (_, url):
            mock = Rig(url, listener)
            wait_until(lambda: mock.client.health().healthy, timeout=30)
            assert mock.provision() == Accepted()
        with process(MOCK_BACKEND_STATE_PATH=state, MOCK_BACKEND_NAME="m7") as (running, url):
            mock = Rig(url, listener)
            (body,) = wait_until(lambda: listener.got and mock.callbacks(1), timeout=30)
            assert (body["status"], body["backend"]) == ("success", "m7")
            running.send_signal(signal.SIGTERM)
            assert running.wait(15) == 0


def test_settings_may_stand_in_a_file(tmp_path):
    config = tmp_path / "mock.yaml"
    config.write_text(f"callback_secret: {SECRET}\nname: from-file\nrequire_hmac: false\n")
    with process("--config", str(config), MOCK_BACKEND_CALLBACK_SECRET=None) as (_, url), peer() as listener:
        mock = Rig(url, listener)
        wait_until(lambda: mock.client.health().healthy, timeout=30)
        mock.provision()
        assert mock.callbacks(1)[0]["backend"] == "from-file"


@pytest.mark.parametrize(
    "environment",
    [
        {"MOCK_BACKEND_DELAY": "-1s"},
        {"MOCK_BACKEND_CALLBACK_SECRET": "x" * 31},
        {"MOCK_BACKEND_CALLBACK_SECRET": None},
        {"MOCK_BACKEND_IDLE_TIMEOUT": "0s"},
        {"MOCK_BACKEND_STATE_PATH": "/nowhere/at/all.sqlite"},
    ],
)
def test_bc129_a_bad_setting_stops_the_start(environment):
    with process(**environment) as (running, _):
        assert running.wait(30) == 1
        assert running.stdout.read()
