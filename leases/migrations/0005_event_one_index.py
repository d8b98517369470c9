import django.db.models.deletion
from django.db import migrations, models

from leases.concurrently import patient, without_own_index


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('leases', '0004_event_request_id'),
    ]

    operations = patient(
        without_own_index(
            'statusevent',
            'lease',
            models.ForeignKey(db_column='lease_uuid', db_index=False, on_delete=django.db.models.deletion.CASCADE, to='leases.lease'),
            {'leases_statusevent_lease_uuid_896d5c45': 'leases_statusevent (lease_uuid)'},
        ),
    )
