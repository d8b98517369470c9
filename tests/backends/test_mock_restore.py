"""Kept data of the mock go to one new lease, or stay kept."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from backends.agent_contract import DemoteExceedsTier, NotRetained, RestoreSpec, TargetProvisioned
from backends.contract import InvalidState, LeaseItem, NotProvisioned, ProvisionStatus, ValidationRefused
from backends.mock.capacity import Tier
from backends.mock.driver import Whim
from backends.mock.script import CRASH
from backends.store import Store
from tests.backends.mock_stage import BETTER, OTHER, URL, Stage, play
from tests.backends.servers import LEASE, PROVIDER, uuid_number


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
