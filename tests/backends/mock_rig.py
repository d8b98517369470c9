"""A mock behind its door of faults, as its callers see it."""

import json
from contextlib import contextmanager

from backends.client import (
    BackendClient,
    classify_deprovision,
    classify_provision,
    deprovision_request,
    provision_request,
)
from backends.mock import serve
from backends.mock.faults import RuleBook
from fred.http import Request, fetch
from tests.backends.servers import mock_agent, peer, served, spec, target, uuid_number
from tests.waiting import wait_until

TOKEN = "token-0123456789abcdef"


class Rig:
    """A mock behind its door, and the listener of its callbacks."""

    def __init__(self, url, listener, door):
        self.url, self.listener, self.door = url, listener, door
        self.target = target(url, timeout=3.0)
        self.client = BackendClient(self.target)

    def control(self, verb, content=None, *, token=TOKEN):
        body = None if content is None else json.dumps(content).encode()
        headers = (("Authorization", f"Bearer {token}"),)
        answer = fetch(Request(f"{self.url}/_mock/{verb}", headers, body, timeout=5))
        return answer.status, json.loads(answer.body)

    def break_with(self, *rules):
        status, said = self.control("faults", list(rules))
        assert status == 200, said

    def provision(self, number=1, *, timeout=3.0, **changes):
        url = f"{self.listener.url}/callbacks/provision?operation_id={number}"
        asked = spec(uuid_number(number), callback_url=url, **changes)
        return classify_provision(fetch(provision_request(target(self.url, timeout=timeout), asked)))

    def deprovision(self, number=1):
        return classify_deprovision(fetch(deprovision_request(self.target, uuid_number(number))))

    def callbacks(self, count):
        wait_until(lambda: len(self.listener.got) >= count)
        return [(json.loads(got.body)["lease_uuid"][-1], json.loads(got.body)["status"]) for got in self.listener.got]


@contextmanager
def rig(store=None, *, seed=0, **settings):
    agent = mock_agent(store=store, outbox={"quick_waits": (0.05, 0.1), "slow_wait": 0.2}, **settings)
    door = serve.behind_door(agent, agent.backend, RuleBook(seed), token=TOKEN)
    with peer() as listener, served(door) as url:
        yield Rig(url, listener, door)
