"""Backends of the configuration."""

import factory

from backends.models import Backend


class BackendFactory(factory.django.DjangoModelFactory):
    """A backend as the configuration made it, after its first contact."""

    class Meta:
        model = Backend
        django_get_or_create = ("name",)

    name = "mock-1"
    url = "http://127.0.0.1:9"
    dialect = "v0_13"
