from django.db import migrations, models

from leases.concurrently import add_index, patient


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('placements', '0002_operation_fillfactor'),
    ]

    operations = patient(
        *add_index(
            'operation',
            models.Index(condition=models.Q(('due_at__isnull', False)), fields=['backend', 'due_at'], name='operation_due_backend'),
        ),
    )
