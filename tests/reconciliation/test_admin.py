"""What an operator may do in the admin site, beside looking."""

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from leases.models import ChainCursor
from reconciliation import suspect_sql
from reconciliation.models import OperatorAction

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.fred.admin_urls")]
CHAIN = "manifest-localnet"


def test_a_suspect_chain_is_believed_again_only_with_a_reason(client, trusted):
    suspect_sql.suspect(CHAIN, reason="other_history", detail="block 99")
    client.force_login(User.objects.create_superuser("ann"))
    url = reverse("admin:leases_chaincursor_changelist")
    form = {"action": "believe", "_selected_action": [CHAIN]}
    assert b"a reason is needed" in client.post(url, form, follow=True).content
    assert ChainCursor.objects.get().suspect_reason
    assert b"believed again" in client.post(url, {**form, "reason": "checked"}, follow=True).content
    assert not ChainCursor.objects.get().suspect_reason
    assert b"was not suspect" in client.post(url, {**form, "reason": "twice"}, follow=True).content
    rows = OperatorAction.objects.order_by("id").values_list("actor", "source", "result")
    assert list(rows) == [("ann", "admin", "done"), ("ann", "admin", "unchanged")]


def test_who_may_only_look_has_no_such_action(client, trusted):
    suspect_sql.suspect(CHAIN, reason="other_history", detail="block 99")
    client.force_login(User.objects.create_user("bob", is_staff=True))
    client.post(reverse("admin:leases_chaincursor_changelist"), {"action": "believe", "_selected_action": [CHAIN]})
    assert ChainCursor.objects.get().suspect_reason
