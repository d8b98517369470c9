"""Django's entry for the kit and the wiring."""

import atexit

import structlog
from django.apps import AppConfig
from django.conf import settings

from fred import arrays, conf, heartbeat, logs, outages
from fred.conf.fingerprint import fingerprint, warnings_at_start

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
            is_outage=outages.is_away,
        )
        arrays.install()
        import fred.celery  # noqa: PLC0415 - the registry must be ready before task modules load
        import fred.readings  # noqa: PLC0415 - it reads rows of all apps

        fred.readings.register()
        if settings.ROLE is conf.Role.PROVIDER:
            _say_hello()
        if settings.PROCESS in {"web", "watcher"}:
            self.start_heartbeat()

    @staticmethod
    def start_heartbeat() -> None:
        """Let this process be seen. Celery's do it once they are up, since their children must not inherit it."""
        beating = heartbeat.Heartbeat(
            settings.HOUSE.redis_url.get_secret_value(),
            process=settings.PROCESS,
            version=settings.VERSION,
            fingerprint=fingerprint(settings.FRED),
        )
        beating.start()
        atexit.register(beating.stop)


def _level() -> str:
    try:
        return settings.FRED.log_level
    except conf.ConfigError:
        return "info"


def _say_hello() -> None:
    log = structlog.get_logger("fred")
    provider = settings.FRED
    log.info(
        "starting providerd",
        version=settings.VERSION,
        provider_uuid=provider.provider_uuid,
        chain_id=provider.chain_id,
        log_level=provider.log_level,
    )
    for warning in settings.CONFIG_WARNINGS:
        log.warning(warning)
    for event, fields in warnings_at_start(provider, settings.HOUSE):
        log.warning(event, **fields)
