import django.db.models.deletion
from django.db import migrations, models

from leases.concurrently import add_index, patient, remove_index, without_own_index


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('backends', '0002_takes_calls'),
        ('leases', '0006_fewer_indexes'),
        ('placements', '0005_operation_request_id'),
    ]

    operations = patient(
        *add_index(
            'operation',
            models.Index(condition=models.Q(('due_at__isnull', False), ('settled_at__isnull', True)), fields=['backend', 'due_at'], name='operation_due_open'),
        ),
        *add_index(
            'operation',
            models.Index(condition=models.Q(('source_lease__isnull', False)), fields=['source_lease'], name='operation_source'),
        ),
        *remove_index('operation', 'operation_due'),
        *remove_index('operation', 'operation_open_backend'),
        *remove_index('operation', 'operation_due_backend'),
        without_own_index(
            'operation',
            'backend',
            models.ForeignKey(db_column='backend', db_index=False, on_delete=django.db.models.deletion.PROTECT, to='backends.backend'),
            {
                'placements_operation_backend_f9b7b543': 'placements_operation (backend)',
                'placements_operation_backend_f9b7b543_like': 'placements_operation (backend text_pattern_ops)',
            },
        ),
        without_own_index(
            'operation',
            'lease',
            models.ForeignKey(db_column='lease_uuid', db_index=False, on_delete=django.db.models.deletion.PROTECT, to='leases.lease'),
            {'placements_operation_lease_uuid_a3a1b022': 'placements_operation (lease_uuid)'},
        ),
        without_own_index(
            'operation',
            'source_lease',
            models.ForeignKey(blank=True, db_column='source_lease_uuid', db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='restores', to='leases.lease'),
            {'placements_operation_source_lease_uuid_7692be89': 'placements_operation (source_lease_uuid)'},
        ),
        without_own_index(
            'placement',
            'backend',
            models.ForeignKey(blank=True, db_column='backend', db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='backends.backend'),
            {
                'placements_placement_backend_85f6e077': 'placements_placement (backend)',
                'placements_placement_backend_85f6e077_like': 'placements_placement (backend text_pattern_ops)',
            },
        ),
    )
