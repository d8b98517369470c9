"""Restart, update, restore, custom domains, history and diagnostics of the mock, without HTTP, on its own clock."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from backends.agent_contract import DemoteExceedsTier, NotRetained, RestoreSpec, TargetProvisioned
from backends.contract import (
    InsufficientResources,
    InvalidState,
    LeaseItem,
    NotProvisioned,
    ProvisionStatus,
    ValidationRefused,
)
from backends.mock.capacity import Tier
from backends.mock.driver import MockBackend, MockSettings, Whim
from backends.mock.script import CRASH, MISSING
from backends.store import Store
from tests.backends.servers import LEASE, PROVIDER, spec, uuid_number

GOOD = b'{"services":{"app":{"image":"r.example/app:1"}}}'
BETTER = b'{"image":"r.example/app:2"}'
CRASHES = b'{"image":"r.example/app:crash"}'
NOT_THERE = b'{"image":"r.example/app:missing"}'
OTHER = uuid_number(7)
URL = "http://127.0.0.1:9/later"


class Heard:
    """The agent's place: hears what is reported, and writes state as the agent would."""

    def __init__(self, store=None):
        self.said, self.store, self.news = [], store, asyncio.Event()

    async def report(self, callback, *, url, state=None):
        if self.store is not None and state is not None:
            await self.store.commit(state)
        self.said.append((callback.status.value, callback.error, url))
        self.news.set()

    async def until(self, count):
        async with asyncio.timeout(5):
            while len(self.said) < count:
                self.news.clear()
                await self.news.wait()

    @property
    def last(self):
        return self.said[-1]


class Stage:
    """A mock with work that takes an hour of its own clock."""

    def __init__(self, store=None, **settings):
        self.heard = Heard(store)
        self.mock = MockBackend(MockSettings(**{"delay": timedelta(hours=1), **settings}), store)

    async def __aenter__(self):
        await self.mock.start(self.heard)
        return self

    async def __aexit__(self, *_):
        await self.mock.stop()

    async def work(self):
        before = len(self.heard.said)
        self.mock.clock.advance(timedelta(hours=1))
        await self.heard.until(before + 1)

    async def ready(self, lease=LEASE, **changes):
        await self.mock.provision(spec(lease, **{"payload": GOOD, **changes}))
        await self.work()

    async def row(self, lease=LEASE):
        found = await self.mock.provision_info(lease)
        return found.status.value, found.reason, found.message, found.fail_count

    async def versions(self):
        return [(one.version, one.image, one.status.value, one.message) for one in await self.mock.releases(LEASE)]


def play(story, **settings):
    async def run():
        async with Stage(**settings) as stage:
            await story(stage)

    asyncio.run(run())


def test_c51_a_restart_makes_the_containers_anew_and_reports_to_the_latest_url():
    async def story(stage):
        await stage.ready()
        before = (await stage.mock.info(LEASE)).instances[0].container_id
        await stage.mock.restart(LEASE, callback_url=URL)
        assert (await stage.row())[0] == "restarting"
        with pytest.raises(NotProvisioned):
            await stage.mock.info(LEASE)
        for again in (
            stage.mock.restart(LEASE, callback_url=URL),
            stage.mock.update(LEASE, payload=GOOD, callback_url=URL),
        ):
            with pytest.raises(InvalidState):
                await again
        await stage.work()
        assert stage.heard.last == ("success", "", URL)
        assert (await stage.mock.info(LEASE)).instances[0].container_id != before
        assert await stage.versions() == [
            (1, "r.example/app:1", "superseded", ""),
            (2, "r.example/app:1", "active", ""),
        ]

    play(story)


def test_c47_an_update_is_a_new_version():
    async def story(stage):
        await stage.ready()
        await stage.mock.update(LEASE, payload=BETTER, callback_url=URL)
        assert (await stage.row())[0] == "updating"
        assert [one[2] for one in await stage.versions()] == ["active", "deploying"]
        await stage.work()
        assert (await stage.mock.provision_info(LEASE)).service_images == {"app": "r.example/app:2"}
        assert [one[2] for one in await stage.versions()] == ["superseded", "active"]
        assert (await stage.mock.releases(LEASE))[1].manifest == BETTER

    play(story)


def test_bc119_an_update_that_crashes_is_rolled_back():
    async def story(stage):
        await stage.ready()
        await stage.mock.update(LEASE, payload=CRASHES, callback_url=URL)
        await stage.work()
        text = "container exited during startup; rolled back to previous version"
        assert stage.heard.last == ("failed", text, URL)
        assert await stage.row() == ("ready", "UpdateFailed", text, 1)
        assert (await stage.versions())[1] == (2, "r.example/app:crash", "failed", "update failed")
        assert (await stage.mock.provision_info(LEASE)).service_images == {"app": "r.example/app:1"}
        await stage.mock.restart(LEASE, callback_url=URL)
        await stage.work()
        assert await stage.row() == ("ready", "", "", 1)
        assert [one[2] for one in await stage.versions()] == ["superseded", "failed", "active"]

    play(story)


def test_an_update_whose_image_is_missing_fails_the_lease_and_leaves_the_old_version_active():
    async def story(stage):
        await stage.ready()
        await stage.mock.update(LEASE, payload=NOT_THERE, callback_url=URL)
        await stage.work()
        assert await stage.row() == ("failed", "ImagePullFailed", "image pull failed", 1)
        assert [one[2] for one in await stage.versions()] == ["active", "failed"]
        assert await stage.mock.logs(LEASE, tail=1)
        await stage.mock.update(LEASE, payload=CRASHES, callback_url=URL)
        await stage.work()
        assert (await stage.row())[0] == "ready"

    play(story)


def test_what_never_ran_has_nothing_to_go_back_to():
    async def story(stage):
        await stage.ready(payload=CRASHES)
        assert await stage.row() == ("failed", "ContainerExited", "container exited during startup", 1)
        await stage.mock.restart(LEASE, callback_url=URL)
        await stage.work()
        text = "container exited during startup; rollback failed"
        assert await stage.row() == ("failed", "RestartFailed", text, 2)
        await stage.mock.update(LEASE, payload=GOOD, callback_url=URL)
        await stage.work()
        assert await stage.row() == ("ready", "", "", 2)

    play(story)


def test_bc119_a_restart_that_is_rolled_back_clears_its_reason():
    class OnlyRestarts:
        def result(self, lease_uuid, *, task):
            return Whim(fate=MISSING) if task == "restart" else None

    async def story(stage):
        await stage.ready()
        stage.mock.whims = OnlyRestarts()
        await stage.mock.restart(LEASE, callback_url=URL)
        await stage.work()
        assert stage.heard.last == ("failed", "restart failed; rolled back to previous version", URL)
        assert await stage.row() == ("ready", "", "", 1)

    play(story)


@pytest.mark.parametrize("verb", ["restart", "update"])
def test_c50_maintenance_of_an_unknown_lease(verb):
    async def story(stage):
        more = {"payload": GOOD} if verb == "update" else {}
        with pytest.raises(NotProvisioned):
            await getattr(stage.mock, verb)(LEASE, callback_url=URL, **more)

    play(story)


def test_c53_an_update_is_judged_at_the_door():
    async def story(stage):
        await stage.ready()
        with pytest.raises(ValidationRefused) as refused:
            await stage.mock.update(LEASE, payload=b"image: x", callback_url=URL)
        assert refused.value.validation_code == "invalid_manifest"
        assert (await stage.row())[0] == "ready"

    play(story)


def test_c59_c60_only_a_changed_domain_redeploys():
    async def story(stage):
        await stage.ready()
        (item,) = (await stage.mock.provision_info(LEASE)).items
        before = (await stage.mock.info(LEASE)).instances
        for items in ([item], [replace(item, service_name="")], [], [LeaseItem("s", 1), LeaseItem("s", 1)]):
            await stage.mock.reconcile_custom_domain(LEASE, items=items)
            await stage.mock.reconcile_custom_domain(OTHER, items=items)
        assert (await stage.mock.info(LEASE)).instances == before
        named = replace(item, custom_domain="shop.example")
        await stage.mock.reconcile_custom_domain(LEASE, items=[named])
        assert (await stage.row())[0] == "restarting"
        await stage.work()
        assert stage.heard.last[0] == "success"
        info = await stage.mock.info(LEASE)
        assert (info.services["app"].fqdn, info.instances != before) == ("shop.example", True)
        await stage.mock.reconcile_custom_domain(LEASE, items=[named])
        assert (await stage.row())[0] == "ready"

    play(story)


def asked(lease=OTHER, **changes):
    fields = {"tenant": "manifest1tenant", "provider_uuid": PROVIDER, "items": (LeaseItem("sku-1", 2),)}
    return RestoreSpec(lease_uuid=lease, source=LEASE, callback_url=URL, **{**fields, **changes})


KEEPS = {"retention": timedelta(days=9)}


def test_c75_c77_kept_data_go_to_one_new_lease():
    async def story(stage):
        await stage.ready()
        await stage.mock.deprovision(LEASE)
        await stage.mock.restore(asked())
        with pytest.raises(InvalidState):
            await stage.mock.restore(asked(uuid_number(8)))
        assert (await stage.row())[0] == "retained"
        assert len((await stage.mock.retentions()).items) == 1
        await stage.work()
        assert stage.heard.last == ("success", "", URL)
        assert (await stage.mock.provision_info(OTHER)).service_images == {"app": "r.example/app:1"}
        assert (await stage.mock.retentions()).items == ()
        with pytest.raises(NotProvisioned):
            await stage.mock.provision_info(LEASE)
        with pytest.raises(NotRetained):
            await stage.mock.restore(asked(uuid_number(9)))

    play(story, **KEEPS)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"lease_uuid": LEASE}, ValidationRefused),
        ({"tenant": "manifest1other"}, NotRetained),
        ({"source": uuid_number(99)}, NotRetained),
        ({"provider_uuid": uuid_number(5)}, ValidationRefused),
        ({"items": (LeaseItem("sku-1", 1),)}, ValidationRefused),
        ({"items": (LeaseItem("sku-1", 2, "web"),)}, ValidationRefused),
        ({"lease_uuid": uuid_number(3)}, TargetProvisioned),
    ],
)
def test_c76_restores_that_are_refused_leave_the_data(changes, error):
    async def story(stage):
        await stage.ready()
        await stage.ready(uuid_number(3))
        await stage.mock.deprovision(LEASE)
        with pytest.raises(error):
            await stage.mock.restore(replace(asked(), **changes))
        await stage.mock.restore(asked())

    play(story, **KEEPS)


@pytest.mark.parametrize("end", ["fails", "is torn down"])
def test_data_of_a_restore_that_fails_or_is_overtaken_stay_kept(end):
    class NoRestore:
        def result(self, lease_uuid, *, task):
            return Whim(fate=CRASH) if task == "restore" and end == "fails" else None

    async def story(stage):
        await stage.ready()
        await stage.mock.deprovision(LEASE)
        stage.mock.whims = NoRestore()
        await stage.mock.restore(asked())
        if end == "fails":
            await stage.work()
            assert stage.heard.last[0] == "failed"
            assert (await stage.row(OTHER))[1] == "RestoreFailed"
        await stage.mock.deprovision(OTHER)
        assert LEASE in [one.lease_uuid for one in (await stage.mock.retentions()).items]
        stage.mock.whims = None
        await stage.mock.restore(asked(uuid_number(8)))

    play(story, **KEEPS)


def test_c78_data_that_do_not_fit_a_smaller_disk_stay_kept():
    tiers = {"sku-1": Tier(disk_mb=1000, data_mb=600), "small": Tier(disk_mb=500), "fits": Tier(disk_mb=700)}

    async def story(stage):
        await stage.ready()
        await stage.mock.deprovision(LEASE)
        with pytest.raises(DemoteExceedsTier, match="600 MB"):
            await stage.mock.restore(asked(items=(LeaseItem("small", 2),)))
        await stage.mock.restore(asked(items=(LeaseItem("fits", 2),)))

    play(story, tiers=tiers, **KEEPS)


def test_c22_c31_c48_skus_and_room():
    tiers = {"sku-1": Tier(cpu=2, memory_mb=100)}

    async def story(stage):
        with pytest.raises(ValidationRefused) as refused:
            await stage.mock.provision(spec(items=(LeaseItem("nobody's", 1),)))
        assert refused.value.validation_code == "unknown_sku"
        await stage.mock.provision(spec(uuid_number(1)))
        full = "insufficient resources: insufficient CPU: need 4.00 cores, have 1.00 available"
        with pytest.raises(InsufficientResources, match=full):
            await stage.mock.provision(spec(uuid_number(2)))
        assert (await stage.mock.stats()).allocated_cpu_cores == 4
        assert len((await stage.mock.provisions()).items) == 1
        await stage.mock.deprovision(uuid_number(1))
        assert (await stage.mock.stats()).allocated_cpu_cores == 0
        await stage.mock.provision(spec(uuid_number(2)))

    play(story, tiers=tiers, total_cpu_cores=5)


def test_a_failed_lease_that_is_gone_is_still_explained():
    async def story(stage):
        await stage.ready(payload=CRASHES)
        await stage.mock.deprovision(LEASE)
        assert await stage.row() == ("failed", "ContainerExited", "container exited during startup", 1)
        assert await stage.mock.logs(LEASE, tail=5) == {"app/0": "mock log output\n", "app/1": "mock log output\n"}
        assert (await stage.mock.provisions()).items == ()
        await stage.ready()
        await stage.mock.deprovision(LEASE)
        with pytest.raises(NotProvisioned):
            await stage.mock.provision_info(LEASE)

    play(story)


def test_c88_a_workload_that_dies_is_reported_to_the_latest_url():
    async def story(stage):
        await stage.ready()
        await stage.mock.restart(LEASE, callback_url=URL)
        await stage.work()
        await stage.mock.kill(LEASE)
        assert stage.heard.last == ("failed", "container exited unexpectedly", URL)
        assert await stage.row() == ("failed", "ContainerExited", "container exited unexpectedly", 1)
        with pytest.raises(NotProvisioned):
            await stage.mock.kill(LEASE)

    play(story)


def test_the_older_mocks_shape():
    async def story(stage):
        await stage.ready()
        info = await stage.mock.info(LEASE)
        assert (info.services, info.instances, info.ports) == ({}, (), {})
        assert info.metadata["token"] == "d41c2d73eae1e6f0d6366e2fbda22429"
        assert await stage.mock.logs(LEASE, tail=1) == {"0": "mock log output\n"}

    play(story, plain=True)


def test_d2_work_under_way_goes_on_after_a_restart(tmp_path):
    async def story():
        store = Store(tmp_path / "a.sqlite")
        async with Stage(store, **KEEPS) as stage:
            await stage.ready()
            await stage.ready(OTHER)
            await stage.mock.update(OTHER, payload=BETTER, callback_url=URL)
            await stage.mock.deprovision(LEASE)
            await stage.mock.restore(asked(uuid_number(8)))
        store.close()
        store = Store(tmp_path / "a.sqlite")
        async with Stage(store, **KEEPS) as stage:
            with pytest.raises(InvalidState):
                await stage.mock.restore(asked(uuid_number(9)))
            stage.mock.clock.advance(timedelta(hours=1))
            await stage.heard.until(2)
            rows = (await stage.mock.provisions()).items
            assert {row.status for row in rows} == {ProvisionStatus.READY}
            assert {image for row in rows for image in row.service_images.values()} == {
                "r.example/app:1",
                "r.example/app:2",
            }
        store.close()

    asyncio.run(story())
