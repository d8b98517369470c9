import django.db.models.deletion
from django.db import migrations, models

from leases.concurrently import patient, remove_index, unique_over, without_own_index


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('leases', '0005_event_one_index'),
    ]

    operations = patient(
        unique_over(
            'chainevent',
            'leases_chainevent',
            'chain_event_once',
            columns='lease_uuid, chain_id, type',
            before='chain_id, lease_uuid, type',
            fields=('lease', 'chain_id', 'type'),
        ),
        without_own_index(
            'chainevent',
            'lease',
            models.ForeignKey(db_column='lease_uuid', db_index=False, on_delete=django.db.models.deletion.CASCADE, to='leases.lease'),
            {'leases_chainevent_lease_uuid_499a8543': 'leases_chainevent (lease_uuid)'},
        ),
        without_own_index(
            'chainaction',
            'lease',
            models.ForeignKey(db_column='lease_uuid', db_index=False, on_delete=django.db.models.deletion.PROTECT, to='leases.lease'),
            {'leases_chainaction_lease_uuid_ee86262d': 'leases_chainaction (lease_uuid)'},
        ),
        without_own_index(
            'chainaction',
            'tx',
            models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, to='leases.chaintx'),
            {'leases_chainaction_tx_id_27b742cf': 'leases_chainaction (tx_id)'},
        ),
        *remove_index('lease', 'lease_phase'),
        *remove_index('lease', 'lease_tenant_active'),
    )
