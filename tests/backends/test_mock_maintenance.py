"""Restart, update, custom domains, history and diagnostics of the mock, without HTTP, on its own clock."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backends.contract import InsufficientResources, InvalidState, LeaseItem, NotProvisioned, ValidationRefused
from backends.mock.capacity import Tier
from backends.mock.driver import Whim
from backends.mock.records import Diagnosis
from backends.mock.script import MISSING
from tests.backends.mock_stage import BETTER, CRASHES, GOOD, NOT_THERE, OTHER, URL, play
from tests.backends.servers import LEASE, spec, uuid_number


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


def test_kept_data_come_before_an_old_failure():
    """BC-118: a point read says what can be had back"""

    async def story(stage):
        await stage.ready(payload=CRASHES)
        held = stage.mock.shelf.held[LEASE]
        why = Diagnosis(LEASE, None, stage.mock.clock.now(), 1, held.reason, held.message, logs={})
        await stage.mock.deprovision(LEASE)
        stage.mock.shelf.diagnose(why)
        assert (await stage.row())[0] == "retained"
        stage.mock.clock.advance(timedelta(days=10))
        assert (await stage.row())[0] == "failed"

    play(story, retention=timedelta(days=9))


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
