"""Leave room on the pages of leases: each is updated a dozen times on its way to ACTIVE, best within its page."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("leases", "0006_fewer_indexes")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE leases_lease SET (fillfactor = 50)",
            "ALTER TABLE leases_lease RESET (fillfactor)",
        ),
    ]
