"""How long rows are kept: commands of tenants."""

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from fred import metrics
from leases.status import LeaseState
from placements.command_status import CommandState as S
from placements.models import MaintenanceCommand
from reconciliation import cleaning, periodic
from tests.factories.leases import LeaseFactory
from tests.factories.placements import CommandFactory
from tests.reconciliation.story import counted

pytestmark = pytest.mark.django_db


def test_commands_go_a_while_after_the_end_of_their_lease_and_never_before():
    long_ago = timezone.now() - timedelta(days=91)
    live = LeaseFactory(chain_state=LeaseState.ACTIVE)
    over = LeaseFactory(chain_state=LeaseState.CLOSED)
    done = {"state": S.SUCCEEDED, "settled_at": long_ago, "finished_at": long_ago}
    kept = [
        CommandFactory(lease=live, **done),
        CommandFactory(lease=over, state=S.ACCEPTED, settled_at=long_ago),
        CommandFactory(lease=over, **{**done, "finished_at": timezone.now()}),
    ]
    CommandFactory(lease=over, **done)
    assert cleaning.old_rows()["placements_maintenancecommand"] == 1
    assert set(MaintenanceCommand.objects.values_list("pk", flat=True)) == {one.pk for one in kept}


@pytest.mark.parametrize(("error", "counts"), [(KeyError("bug"), 1), (OperationalError("away"), 0)])
def test_a_bug_in_cleaning_is_counted_and_a_database_that_is_away_is_none(error, counts):
    def clean():
        raise error

    before = counted(metrics.CLEANUP_CRASHES, component="token")
    with pytest.raises(type(error)):
        periodic.cleaned("token", clean)
    assert counted(metrics.CLEANUP_CRASHES, component="token") == before + counts
