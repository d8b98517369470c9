"""The mock's control API and its book of rules; the same seed makes the same faults."""

import json
import random
from base64 import b64decode

import pytest

from backends.client import Accepted, Ambiguous, CapacityClaimed, Done
from backends.mock import faults, serve
from backends.mock.faults import FaultError, RuleBook
from fred.http import Request, fetch
from tests.backends.mock_rig import Rig, rig
from tests.backends.servers import SECRET, peer, served, uuid_number
from tests.waiting import wait_until


def test_the_control_api():
    with rig(total_cpu_cores=10) as mock:
        assert mock.control("state", token="wrong")[0] == 401
        mock.provision(1, payload=b'{"image":"x"}')
        mock.callbacks(1)
        assert b64decode(mock.control(f"payload/{uuid_number(1)}")[1]["payload"]) == b'{"image":"x"}'
        (first,) = [one for one in mock.control("requests")[1]["requests"] if one["method"] == "POST"]
        assert (first["target"], first["status"], first["lease"]) == ("/provision", 202, str(uuid_number(1)))
        (sent,) = wait_until(lambda: mock.control("callbacks")[1]["callbacks"])
        assert (sent["status"], json.loads(sent["body"])["status"]) == (200, "success")
        assert mock.control("kill", {"lease_uuid": str(uuid_number(1))})[0] == 200
        assert mock.callbacks(2)[1] == ("1", "failed")
        assert mock.control("kill", {"lease_uuid": str(uuid_number(1))})[0] == 404
        assert mock.control("capacity", {"total_cpu_cores": 1})[0] == 200
        assert isinstance(mock.provision(2), CapacityClaimed)
        mock.control("capacity", {"total_cpu_cores": 9, "hold": True})
        assert isinstance(mock.provision(2), CapacityClaimed)
        mock.control("capacity", {"hold": False})
        assert mock.provision(2) == Accepted()
        assert mock.control("state")[1]["provisions"] == 2
        mock.control("reset", {"state": True})
        assert mock.client.provisions().items == ()
        assert mock.control("nowhere")[0] == mock.control("nowhere", {})[0] == 404


@pytest.mark.parametrize(
    ("verb", "content"),
    [
        ("faults", [{"action": "explode"}]),
        ("faults", {"action": "status", "status": 99}),
        ("faults", {"action": "callback", "copies": 101}),
        ("faults", {"action": "lose", "match": {"probability": 2}}),
        ("faults", {"action": "result", "seconds": 601}),
        ("faults", [{"action": "lose"}] * 201),
        ("clock", {"advance_s": -1}),
        ("kill", {}),
        ("kill", {"lease_uuid": "x"}),
        ("flap", {"lease_uuid": str(uuid_number(1)), "every_s": 0}),
        ("crash", {"code": 1}),
    ],
    ids=str,
)
def test_what_the_control_api_does_not_take(verb, content):
    with rig() as mock:
        status, said = mock.control(verb, content)
        assert (status, bool(said["error"])) == (400, True)


def test_rules_are_bounded_in_number():
    book = RuleBook()
    book.add(faults.parse(b'{"action":"lose"}') * 200)
    with pytest.raises(FaultError):
        book.add(faults.parse(b'{"action":"lose"}'))


def test_a_workload_that_flaps():
    with rig() as mock:
        mock.provision()
        mock.callbacks(1)
        mock.control("flap", {"lease_uuid": str(uuid_number(1)), "every_s": 60})
        for round_ in (1, 2):
            mock.control("clock", {"advance_s": 61})
            assert mock.callbacks(2 * round_)[-1] == ("1", "failed")
            assert mock.provision() == Accepted()
            assert mock.callbacks(2 * round_ + 1)[-1] == ("1", "success")


def test_windows_and_counts_of_a_rule():
    moment = [0.0]
    book = RuleBook(moment=lambda: moment[0])
    match = {"lease": "0199", "every": 2, "after_s": 10, "until_s": 20}
    book.add(faults.parse(json.dumps({"action": "lose", "match": match, "times": 2})))
    hits = []
    for second in range(30):
        moment[0] = float(second)
        hits.append(len(book.requests("provision", "0199-x")))
    assert [second for second, hit in enumerate(hits) if hit] == [11, 13]
    assert not book.requests("provision", "0200-x")


def test_bc132_the_same_seed_makes_the_same_faults():
    def play(seed):
        with rig(seed=seed) as mock:
            mock.break_with(
                {"action": "callback", "kind": "duplicate", "copies": 5, "match": {"probability": 0.3}},
                {"action": "callback", "kind": "reorder", "match": {"probability": 0.2}},
                {"action": "lose", "match": {"route": "provision", "probability": 0.2}},
            )
            outcomes = [type(mock.provision(number)).__name__ for number in range(1, 41)]
            wait_until(lambda: mock.control("state")[1]["outbox"]["waiting"] == 0)
            applied = mock.control("state")[1]["applied"]
            requests = [(one.target, one.lease, one.status) for one in mock.door.records]
            return outcomes, applied, requests, sorted(one.lease for one in mock.door.control.courier.records)

    assert play(7) == play(7) != play(8)


def test_chance_of_a_latency_is_within_its_bounds():
    chance = random.Random(1)
    (even, skewed, long) = faults.parse(
        b'[{"action":"latency","low_ms":10,"high_ms":20},{"action":"latency","p50_ms":100,"p99_ms":1000},'
        b'{"action":"latency","ms":1e12}]'
    )
    assert all(0.01 <= even.seconds(chance) <= 0.02 for _ in range(100))
    waits = sorted(skewed.seconds(chance) for _ in range(10_000))
    assert 0.09 < waits[5000] < 0.11
    assert 0.8 < waits[9900] < 1.3
    assert long.seconds(chance) == faults.MAX_SECONDS


def test_faults_of_the_environment():
    from fred.conf import AgentConfig

    settings = {"callback_secret": SECRET, "faults": '[{"action":"lose","match":{"route":"provision"}}]'}
    door = serve.app(AgentConfig(**settings))
    with peer() as listener, served(door) as url:
        mock = Rig(url, listener, door)
        assert isinstance(mock.provision(), Ambiguous)
        assert fetch(Request(f"{url}/_mock/state")).status == 404
        assert mock.deprovision() == Done()
    with pytest.raises(serve.SetupError, match="MOCK_BACKEND_FAULTS"):
        serve.app(AgentConfig(callback_secret=SECRET, faults="x"))
    assert not isinstance(serve.app(AgentConfig(callback_secret=SECRET)), serve.Door)
