"""Leave room on the pages of operations, so that updates of their state stay within the page."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("placements", "0001_initial")]
    operations = [
        migrations.RunSQL(
            "ALTER TABLE placements_operation SET (fillfactor = 70)",
            "ALTER TABLE placements_operation RESET (fillfactor)",
        ),
    ]
