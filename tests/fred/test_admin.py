"""The admin site shows every table, tells a lease's story, and changes nothing."""

import uuid

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse

from backends.models import HealthCheck
from fred.models import PeriodicTask
from leases.models import ChainAction, ChainEvent, ChainTx, Signer, StatusEvent
from leases.status import LeaseState
from placements.models import Callback, Operation, Placement, Provision, Retention, Teardown
from reconciliation.models import DecisionRecord, OperatorAction, Sweep, SweepBackend
from tenants_api.models import IdempotencyKey, TenantRequest, UsedToken
from tests.factories.leases import ChainCursorFactory, LeaseFactory, PayloadFactory
from tests.factories.placements import CommandFactory, OperationFactory, PlacementFactory

pytestmark = pytest.mark.django_db
OURS = [
    model
    for app in ("fred", "leases", "backends", "placements", "reconciliation", "tenants_api")
    for model in apps.get_app_config(app).get_models()
]
# A part of a sweep's page is shown there.
SHOWN = [*(model for model in OURS if model is not SweepBackend), User, Group]
NOW = "2026-01-01T00:00Z"


@pytest.fixture(scope="module", autouse=True)
def routes():
    """The admin server's; Django reads them anew for each change of this setting, which takes longer than a page."""
    with override_settings(ROOT_URLCONF="tests.fred.admin_urls"):
        yield


@pytest.fixture
def operator(client, settings):
    """A client that is logged in as the operator; no request of it is for a static file, whose list takes long."""
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "whitenoise" not in name]
    settings.STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    client.force_login(User.objects.create_superuser("operator"))
    return client


@pytest.fixture
def rows():
    """One row of every table, all about one lease."""
    lease = LeaseFactory(
        tenant="manifest1tenant", chain_state=LeaseState.ACTIVE, meta_hash=bytes(range(32)), due_at=NOW
    )
    operation = OperationFactory(lease=lease, payload_sha256=bytes(32))
    PlacementFactory(lease=lease)
    PayloadFactory(lease=lease, body=b"a secret of the tenant")
    ChainCursorFactory()
    ChainEvent.objects.create(lease=lease, chain_id="x", type="lease_created", height=5)
    signer = Signer.objects.create(address="manifest1signer")
    tx = ChainTx.objects.create(signer=signer, sequence=1, kind="ack", tx_bytes=b"tx", tx_hash="ABCD")
    ChainAction.objects.create(lease=lease, verb="ack", tx=tx)
    StatusEvent.objects.create(lease=lease, status="ready")
    Callback.objects.create(
        lease=lease,
        selector="operation",
        selector_id=operation.pk,
        status="success",
        body_sha256=b"",
    )
    Teardown.objects.create(lease=lease, backend=operation.backend)
    CommandFactory(lease=lease, payload_sha256=bytes(32))
    for model in (Provision, Retention):
        model.objects.create(backend=operation.backend, lease_uuid=lease.pk, walk_id=1, walk_started_at=NOW)
    SweepBackend.objects.create(sweep=Sweep.objects.create(), backend="mock-1")
    DecisionRecord.objects.create(lease=lease, decision="acknowledge")
    OperatorAction.objects.create(
        actor="me@host", source="command", action="drain", target="backend:b1", reason="disk", result="done"
    )
    HealthCheck.objects.create(name="chain", healthy=True)
    PeriodicTask.objects.create(name="sweep")
    Group.objects.create(name="operators")
    UsedToken.objects.create(key="a+b/c==", expires_at=NOW)
    IdempotencyKey.objects.create(
        tenant="manifest1tenant",
        method="POST",
        path=f"/v1/leases/{lease.pk}/data",
        key="k1",
        request_sha256=bytes(32),
        operation_id=operation.pk,
        claim_expires_at=NOW,
        expires_at=NOW,
    )
    TenantRequest.objects.create(tenant="manifest1tenant", lease_uuid=lease.pk, route="data", status=202)
    return lease


def name_of(model):
    return f"admin:{model._meta.app_label}_{model._meta.model_name}"


def test_every_table_is_shown():
    assert [model for model in SHOWN if not admin.site.is_registered(model)] == []


@pytest.mark.parametrize("model", SHOWN, ids=lambda model: model.__name__)
def test_a_list_and_a_page_open_and_show_no_bulk(model, operator, rows):
    listed = operator.get(reverse(f"{name_of(model)}_changelist"))
    assert listed.status_code == 200
    row = model._default_manager.first()
    page = operator.get(reverse(f"{name_of(model)}_change", args=[row.pk]))
    assert page.status_code == 200
    for answer in (listed, page):
        assert b"a secret of the tenant" not in answer.content


@pytest.mark.parametrize("model", SHOWN, ids=lambda model: model.__name__)
def test_nothing_can_be_added_changed_or_deleted(model, operator, rows):
    before = list(model._default_manager.values())
    row = model._default_manager.first()
    name = name_of(model)
    assert operator.get(reverse(f"{name}_add")).status_code == 403
    assert operator.post(reverse(f"{name}_add"), {}).status_code == 403
    assert operator.post(reverse(f"{name}_change", args=[row.pk]), {"_save": "1"}).status_code == 403
    assert operator.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    assert list(model._default_manager.values()) == before


@pytest.mark.slow
@pytest.mark.parametrize("model", SHOWN, ids=lambda model: model.__name__)
def test_every_filter_opens(model, operator, rows):
    url = reverse(f"{name_of(model)}_changelist")
    page = operator.get(url).context["cl"]
    for spec in page.filter_specs:
        for choice in spec.choices(page):
            assert operator.get(url + choice["query_string"]).status_code == 200


@pytest.mark.parametrize("model", [Operation, Placement, Callback, ChainAction], ids=lambda model: model.__name__)
def test_a_list_asks_as_often_for_many_rows_as_for_one(model, operator, rows):
    url = reverse(f"{name_of(model)}_changelist")
    operator.get(url)
    with CaptureQueriesContext(connection) as one:
        operator.get(url)
    for lease in LeaseFactory.create_batch(5):
        operation = OperationFactory(lease=lease)
        PlacementFactory(lease=lease)
        tx = ChainTx.objects.create(
            signer_id="manifest1signer", sequence=2, kind="ack", tx_bytes=b"", tx_hash=str(lease), state="included"
        )
        ChainAction.objects.create(lease=lease, verb="ack", tx=tx)
        Callback.objects.create(
            lease=lease, selector="operation", selector_id=operation.pk, status="success", body_sha256=b""
        )
    with CaptureQueriesContext(connection) as many:
        assert operator.get(url).context["cl"].result_count == 6
    assert len(many) == len(one)


def test_nobodys_password_is_shown(operator, rows):
    someone = User.objects.create_user("someone", password="a long enough one")
    assert someone.password.encode() not in operator.get(reverse("admin:auth_user_change", args=[someone.pk])).content


@pytest.mark.parametrize("path", ["/", "/admin"])
def test_the_site_is_found_without_its_slash(client, path):
    answer = client.get(path)
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")


def test_a_leases_page_begins_with_what_it_is_and_why_it_waits(operator, rows):
    page = operator.get(reverse("admin:leases_lease_change", args=[rows.pk]))
    ((_, shown),) = page.context["adminform"].fieldsets
    assert shown["fields"][:3] == ["state", "phase", "reason"]
    assert shown["fields"][-3:] == ["due_at", "attempts", "epoch"]
    assert len(set(shown["fields"])) == len(shown["fields"])


def test_who_is_not_logged_in_is_asked_to(client, rows, settings):
    answer = client.get(reverse("admin:leases_lease_changelist"))
    assert answer.status_code == 302
    assert "/admin/login/" in answer["Location"]


def test_a_leases_page_tells_its_story(operator, rows):
    page = operator.get(reverse("admin:leases_lease_change", args=[rows.pk]))
    chapters = {chapter["title"]: chapter for chapter in page.context["story"]}
    for title in (
        "operations (lease)",
        "placements (lease)",
        "callbacks (lease)",
        "chain actions (lease)",
        "decision records (lease)",
        "status events (lease)",
        "teardowns (lease)",
        "payloads (lease)",
    ):
        assert len(chapters[title]["rows"]) == 1, title
        assert operator.get(chapters[title]["url"]).context["cl"].result_count == 1, title
        assert operator.get(chapters[title]["rows"][0]["url"]).status_code == 200
    assert bytes(range(32)).hex().encode() in page.content


def test_the_story_is_that_of_one_lease(operator, rows):
    other = LeaseFactory()
    OperationFactory(lease=other)
    story = operator.get(reverse("admin:leases_lease_change", args=[other.pk])).context["story"]
    assert sum(len(chapter["rows"]) for chapter in story) == 1


def test_a_row_leads_to_its_lease(operator, rows):
    for model in ("placements_operation", "placements_callback", "leases_chainaction", "placements_provision"):
        page = operator.get(reverse(f"admin:{model}_changelist"))
        assert reverse("admin:leases_lease_change", args=[rows.pk]).encode() in page.content


@pytest.mark.parametrize(
    ("term", "found"),
    [
        (str, 1),
        (lambda lease: str(lease).upper(), 1),
        (lambda _: "manifest1tenant", 1),
        (lambda _: str(uuid.uuid4()), 0),
        (lambda _: "x y", 0),
    ],
    ids=["uuid", "upper case", "tenant", "another", "junk"],
)
def test_a_lease_is_found_by_uuid_or_tenant(term, found, operator, rows):
    page = operator.get(reverse("admin:leases_lease_changelist"), {"q": term(rows)})
    assert page.status_code == 200
    assert page.context["cl"].result_count == found


@pytest.mark.parametrize(
    ("query", "found"),
    [("state=2", 1), ("state=3", 0), ("state=stub", 0), ("due=now", 1), ("due=rest", 0), ("due=stuck", 0)],
)
def test_leases_are_filtered_by_state_and_by_what_is_due(query, found, operator, rows):
    assert operator.get(f"{reverse('admin:leases_lease_changelist')}?{query}").context["cl"].result_count == found
