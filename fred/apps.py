"""Django's entry for the kit and the wiring."""

from importlib.metadata import PackageNotFoundError, version

import structlog
from django.apps import AppConfig
from django.conf import settings

from fred import conf, logs
from fred.conf.fingerprint import warnings_at_start

_SERVICES = frozenset({"web", "worker", "beat", "watcher", "agent", "devchain"})


class FredConfig(AppConfig):
    """The kit below every app and the wiring above them."""

    name = "fred"
    label = "fred"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Start the log; make the Celery app the current one, so that tasks and hints use our broker."""
        logs.set_up(
            level=_level(),
            output=settings.HOUSE.fred_log_format,
            process=settings.PROCESS,
            to_stdout=settings.PROCESS in _SERVICES,
        )
        import fred.celery  # noqa: F401, PLC0415 - the registry must be ready before task modules load

        if settings.ROLE is conf.Role.PROVIDER:
            _say_hello()


def _level() -> str:
    try:
        return settings.FRED.log_level
    except conf.ConfigError:
        return "info"


def _say_hello() -> None:
    log = structlog.get_logger("fred")
    try:
        release = version("fred")
    except PackageNotFoundError:  # run from a checkout
        release = "development"
    provider = settings.FRED
    log.info(
        "starting providerd",
        version=release,
        provider_uuid=provider.provider_uuid,
        chain_id=provider.chain_id,
        log_level=provider.log_level,
    )
    for warning in settings.CONFIG_WARNINGS:
        log.warning(warning)
    for event, fields in warnings_at_start(provider, settings.HOUSE):
        log.warning(event, **fields)
