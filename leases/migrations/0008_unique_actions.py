"""An acknowledgement and a rejection of one lease exclude each other, also where that index was once lost."""

from django.db import migrations

from leases.concurrently import patient, unique_there


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('leases', '0007_lease_fillfactor'),
    ]

    operations = patient(
        unique_there(
            'chain_action_ack_xor_reject',
            "leases_chainaction (lease_uuid) WHERE verb IN ('ack', 'reject') AND state IN ('queued', 'in_tx')",
        ),
    )
