"""The web process's ASGI application: for tenants, backends and probes, or with `FRED_ROLE=admin` the admin site."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fred.settings")
django.setup(set_prefix=False)

from fred import web  # noqa: E402 - models can only be imported once Django is ready

application = web.compose()
