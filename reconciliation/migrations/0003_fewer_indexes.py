import django.db.models.deletion
from django.db import migrations, models

from leases.concurrently import patient, without_own_index


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('leases', '0006_fewer_indexes'),
        ('reconciliation', '0002_operator_action'),
    ]

    operations = patient(
        without_own_index(
            'decisionrecord',
            'lease',
            models.ForeignKey(db_column='lease_uuid', db_index=False, on_delete=django.db.models.deletion.CASCADE, to='leases.lease'),
            {'reconciliation_decisionrecord_lease_uuid_213163b5': 'reconciliation_decisionrecord (lease_uuid)'},
        ),
    )
