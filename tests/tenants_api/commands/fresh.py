"""Tokens that no call of a test used before: those of one second are equal, and good for one call."""

import time

from tests.tenants_api.calls import bearer
from tests.tenants_api.vectors import LEASE


class Fresh:
    """Headers with a token for each call."""

    def __init__(self):
        self.used = set()

    def __call__(self, who="alice", lease=LEASE):
        now = int(time.time())
        moment = next(one for one in range(now + 8, now - 28, -1) if (who, lease, one) not in self.used)
        self.used.add((who, lease, moment))
        return bearer(who, lease, timestamp=moment)
