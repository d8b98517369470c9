import django.db.models.functions.datetime
from django.db import migrations, models

APPEND_ONLY = """
CREATE FUNCTION reconciliation_operatoraction_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'operators'' actions are never changed or deleted';
END $$;
CREATE TRIGGER operator_action_is_kept BEFORE UPDATE OR DELETE ON reconciliation_operatoraction
    FOR EACH ROW EXECUTE FUNCTION reconciliation_operatoraction_is_kept();
"""
CHANGEABLE = """
DROP TRIGGER operator_action_is_kept ON reconciliation_operatoraction;
DROP FUNCTION reconciliation_operatoraction_is_kept();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("reconciliation", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="OperatorAction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("actor", models.TextField(help_text="Who: the admin site's user, or user@host of a command.")),
                ("source", models.TextField(help_text="command or admin")),
                ("action", models.TextField()),
                ("target", models.TextField()),
                ("reason", models.TextField()),
                ("before", models.JSONField(blank=True, default=dict)),
                ("after", models.JSONField(blank=True, default=dict)),
                ("result", models.TextField(help_text="done, unchanged or refused")),
                ("error", models.TextField(blank=True, default="", help_text="Why it was refused.")),
            ],
            options={
                "indexes": [models.Index(fields=["target", "-id"], name="operator_action_target")],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, CHANGEABLE),
    ]
