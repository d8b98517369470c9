"""What a worker of the queue `chain` does about keys: at its start, and when the clock's task looks after them."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db.models.functions import Now
from pydantic import SecretStr
from structlog.testing import capture_logs

from fred.models import PeriodicTask
from leases import lanes, node, tasks
from leases.chain import keyring
from leases.chain.devchain.keys import MNEMONIC_TENANT
from leases.chain.keys import SigningKey
from leases.models import ChainTx
from tests.leases.house import action_states, pending, states, want
from tests.leases.signers import (
    address_of,
    give,
    grant,
    have_sub_signers,
    look_after,
    make_due,
    settle,
    signed_by,
    usable,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("house")


def start(*names: str) -> list[dict]:
    """Start a worker of these queues (`chain`); return what it logged."""
    queues = SimpleNamespace(consume_from=names or ("chain",))
    with capture_logs() as logged:
        tasks.check_keys(SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))
    return logged


@pytest.fixture
def keys(house, settings, tmp_path):
    """A test keyring with the provider's key in it, named by the settings."""
    (tmp_path / "keyring-test").mkdir()
    provider = SigningKey.from_hex(settings.HOUSE.fred_signer_private_key.get_secret_value())
    keyring.write_key(tmp_path, "main", provider, backend="test")
    return {"keyring_backend": "test", "keyring_dir": str(tmp_path), "key_name": "main"}


def test_a_mnemonic_of_another_wallet_stops_the_start(settings):
    """CH-17"""
    have_sub_signers(settings, 2)
    settings.HOUSE = settings.HOUSE.model_copy(update={"fred_mnemonic": SecretStr(MNEMONIC_TENANT)})
    with pytest.raises(SystemExit, match="mnemonic does not match primary key"):
        start()
    have_sub_signers(settings, 0)
    settings.HOUSE = settings.HOUSE.model_copy(update={"fred_mnemonic": SecretStr(MNEMONIC_TENANT)})
    assert start() == []


def test_missing_keys_are_told_in_one_warning(settings, keys):
    """CH-18"""
    have_sub_signers(settings, 3, **keys)
    settings.HOUSE = settings.HOUSE.model_copy(update={"fred_mnemonic": SecretStr("")})
    [warning] = start()
    assert (warning["event"], warning["wanted"], warning["missing"]) == ("signer.keys_missing", 3, 3)
    assert "main-sub-1" in warning["why"][0]


def test_a_start_has_grants_and_funds_looked_at(settings):
    have_sub_signers(settings, 1)
    PeriodicTask.objects.create(name="sub-signers", due_at=Now() + timedelta(hours=1))
    start()
    assert PeriodicTask.objects.filter(name="sub-signers", due_at__lte=Now()).exists()


def test_a_pass_that_runs_just_now_is_not_disturbed(settings):
    have_sub_signers(settings, 1)
    PeriodicTask.objects.create(name="sub-signers", due_at=Now() + timedelta(seconds=5), epoch=3)
    start()
    assert PeriodicTask.objects.get(name="sub-signers").epoch == 3


def test_keys_are_written_by_the_pass_and_found_by_every_lane(house, settings, keys, run_in_threads):
    """Three workers at once: one writes, nothing is written twice, all sign."""
    have_sub_signers(settings, 2, **keys)
    grant(house, 1, 2)
    give(house, {1: 10**7, 2: 10**7})
    PeriodicTask.objects.create(name="sub-signers", due_at=Now())
    run_in_threads(3, tasks.subsigners.run_due)
    assert [one.address for one in node.sub_keys().present()] == [address_of(house, 1), address_of(house, 2)]
    assert sorted(path.name for path in (node.sub_keys().directory / "keyring-test").glob("*.info")) == [
        "main-sub-1.info",
        "main-sub-2.info",
        "main.info",
    ]
    wait_until(lambda: settle() or usable() == [0, 1])
    house.set_block_mode("manual")  # whoever has sent waits for its block: the other takes the rest
    leases = pending(house, 60)
    want("ack", leases)
    wait_until(lambda: not make_due() and not lanes.run() and ChainTx.objects.count() == 2)
    house.set_block_mode("instant")
    house.produce_block()
    wait_until(lambda: not make_due() and not lanes.run() and action_states("ack") == {"done": 60})
    assert set(states(house, leases)) == {2}
    assert set(signed_by(house)) == {address_of(house, 1), address_of(house, 2)}


def test_a_keyring_that_cannot_be_written_leaves_the_providers_key(house, settings, keys):
    have_sub_signers(settings, 1, **keys)
    folder = node.sub_keys().directory / "keyring-test"
    (folder / "main-sub-1.info").write_text("damaged")
    with capture_logs() as logged:
        look_after()
    assert usable() == []
    assert not [entry for entry in logged if entry["event"] == "signer.key_written"]
    leases = pending(house, 2)
    want("ack", leases)
    wait_until(lambda: not make_due() and not lanes.run() and set(states(house, leases)) == {2})
    assert set(signed_by(house)) == {address_of(house, 0)}


def test_a_worker_without_the_providers_key_does_not_start(house, settings):
    """CH-19: only where transactions are signed."""
    settings.FRED = settings.FRED.model_copy(update={"provider_address": house.keys["tenant"].address})
    start("lifecycle")
    with pytest.raises(SystemExit, match="provider_address"):
        start("chain", "sweep")
