"""How many calls a tenant may make, and who is charged for them."""

import pytest

from tenants_api.errors import ApiError
from tests.tenants_api.calls import bearer, envelope, token
from tests.tenants_api.vectors import ALICE, BOB, LEASE

pytestmark = pytest.mark.django_db
LIMITED = envelope("rate limit exceeded", 429)


def limit(settings, *, rps, burst):
    settings.FRED = settings.FRED.model_copy(update={"tenant_rate_limit_rps": rps, "tenant_rate_limit_burst": burst})


def test_ta35_ten_calls_of_a_tenant_at_once_then_429_and_others_go_on(ask, lease, settings):
    assert (settings.FRED.tenant_rate_limit_rps, settings.FRED.tenant_rate_limit_burst) == (5.0, 10)
    limit(settings, rps=0.01, burst=10)
    found = [ask("status") for _ in range(11)]
    assert sorted(one.status for one in found) == [200] * 10 + [429]
    refused = found[-1]
    assert (refused.body, refused.headers["Retry-After"]) == (LIMITED, "100")
    assert ask("status", "bob").status == 403


def test_ta36_a_forged_token_costs_its_victim_nothing(ask, lease, settings):
    limit(settings, rps=0.01, burst=10)
    forged = bearer("bob", tenant=ALICE)
    assert {ask("status", headers=forged).status for _ in range(100)} == {401}
    assert [ask("status").status for _ in range(10)] == [200] * 10
    assert (ask("status").status, ask("status", headers=forged).status) == (429, 401)


def test_ta12_an_expired_token_costs_nothing(ask, lease, settings):
    limit(settings, rps=0.1, burst=1)
    assert ask("status", headers=bearer(timestamp=1)).status == 401
    assert ask("status").status == 200
    refused = ask("status")
    assert (refused.status, refused.headers["Retry-After"]) == (429, "10")


def test_a_refused_call_spends_no_token_of_its_own(ask, lease, backends, settings):
    limit(settings, rps=0.1, burst=1)
    backends.one.says(f"/info/{LEASE}", {"host": "h"})
    ask("status")
    headers = bearer()
    assert ask("connection", headers=headers).status == 429
    limit(settings, rps=0.0, burst=0)
    assert ask("connection", headers=headers).status == 200


def test_who_asks_is_told_how_the_bucket_stands(ask, lease, settings):
    limit(settings, rps=0.01, burst=2)
    asked = {"X-RateLimit-Info": "1"}
    found = [ask("status", headers={**bearer(), **asked}) for _ in range(3)]
    names = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
    assert [one.status for one in found] == [200, 200, 429]
    assert [[one.headers[name] for name in names[:2]] for one in found] == [["2", "1"], ["2", "0"], ["2", "0"]]
    resets = [int(one.headers["RateLimit-Reset"]) for one in found]
    assert resets == pytest.approx([100, 200, 200], abs=20)
    for headers in ({}, {"X-RateLimit-Info": "yes"}):
        assert not set(names) & ask("status", headers={**bearer("bob"), **headers}).headers.keys()


def test_switched_off_nobody_is_told_anything(ask, lease, settings):
    limit(settings, rps=0.0, burst=0)
    found = ask("status", headers={**bearer(), "X-RateLimit-Info": "1"})
    assert (found.status, "RateLimit-Limit" in found.headers) == (200, False)


def test_switched_off_nobody_is_limited(ask, lease, settings):
    limit(settings, rps=0.0, burst=0)
    assert {ask("status").status for _ in range(30)} == {200}


def test_a_bad_path_costs_a_token(ask, settings):
    limit(settings, rps=0.1, burst=1)
    assert ask("status", path="not-a-uuid").status == 400
    assert ask("status", path="not-a-uuid").status == 429


@pytest.mark.parametrize("rps", [5.0, 0.0])
def test_a_check_of_the_routes_own_stands_before_the_path_and_spends_nothing(rps, house, settings):
    """With the limiter off it stands before the token too: the order of command keys."""
    from tenants_api.admission import admit
    from tenants_api.models import UsedToken

    limit(settings, rps=rps, burst=10)

    def refuse():
        raise ApiError(400, "no")

    def status(authorization, path):
        with pytest.raises(ApiError) as caught:
            admit(method="POST", authorization=authorization, path=path, once=True, expects="POST", early=refuse)
        return caught.value.text

    assert status(f"Bearer {token(lease='x')}", "x") == "no"
    assert status(None, LEASE) == ("no" if rps == 0 else "unauthorized")
    assert not UsedToken.objects.exists()


def test_ta35_processes_share_a_tenants_bucket(ask, lease, settings):
    """Two sets of buckets, as two processes have them."""
    from fred.buckets import Buckets

    limit(settings, rps=0.01, burst=10)
    other = Buckets("tenant", rate=0.01, burst=10)
    assert [other.take(ALICE) for _ in range(5)] == [0.0] * 5
    assert [ask("status").status for _ in range(6)] == [200] * 5 + [429]
    assert other.take(BOB) == 0.0
