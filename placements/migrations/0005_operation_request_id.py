from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('placements', '0004_maintenance_command'),
    ]

    operations = [
        migrations.AddField(
            model_name='operation',
            name='request_id',
            field=models.TextField(
                blank=True, db_default='', help_text='The request that asked for it, if one did.'
            ),
        ),
    ]
