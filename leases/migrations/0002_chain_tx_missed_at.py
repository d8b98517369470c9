from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("leases", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="chaintx",
            name="missed_at",
            field=models.DateTimeField(blank=True, help_text="First not found past its timeout height.", null=True),
        ),
    ]
