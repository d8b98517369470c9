from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("backends", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="backend",
            name="fenced_by",
            field=models.TextField(
                blank=True,
                default="",
                help_text="Who fenced it: the configuration, which may take it back, or an operator.",
            ),
        ),
        migrations.AddField(
            model_name="backend",
            name="takes_calls",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.ExpressionWrapper(
                    models.Q(
                        ("configured", True),
                        ("fenced", False),
                        ("retired_at__isnull", True),
                        models.Q(
                            ("contract", "v0_13"),
                            models.Q(("contract", "auto"), ("dialect", "v0_13")),
                            _connector="OR",
                        ),
                    ),
                    output_field=models.BooleanField(),
                ),
                help_text="Whether anything may be pushed to it: who claims a push reads only this.",
                output_field=models.BooleanField(),
            ),
        ),
    ]
