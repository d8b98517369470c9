"""A lease has one open operation, a source one open restore, also where those indexes were once lost."""

from django.db import migrations

from leases.concurrently import patient, unique_there


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('placements', '0006_fewer_indexes'),
    ]

    operations = patient(
        unique_there('operation_one_open', 'placements_operation (lease_uuid) WHERE settled_at IS NULL'),
        unique_there(
            'operation_one_restore_per_source',
            "placements_operation (source_lease_uuid) WHERE kind = 'restore' AND settled_at IS NULL",
        ),
    )
