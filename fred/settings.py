"""Django's view of the settings: copied from `fred.conf`, nothing is decided here but what is always so."""

import importlib.metadata
import importlib.util
import os
import secrets
import sys
import tomllib
from pathlib import Path

import environ

from fred import conf

BASE_DIR = Path(__file__).resolve().parent.parent
ROLE = conf.role_of(sys.argv)
PROCESS = conf.process_of(sys.argv)

try:
    _loaded = conf.load(os.environ, role=ROLE, path=conf.config_path_of(sys.argv))
except conf.ConfigError as error:
    if conf.command_of(sys.argv) != "check_config":
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None
    _loaded = conf.load({}, role=conf.Role.NONE)  # the command reads them itself and tells all that is wrong

FRED: conf.ProviderConfig = _loaded.provider.tree
HOUSE: conf.HouseConfig = _loaded.house.tree
AGENT: conf.AgentConfig | None = _loaded.agent.tree if _loaded.agent else None
CONFIG_WARNINGS: tuple[str, ...] = (*_loaded.provider.warnings, *_loaded.house.warnings)

LOGGING_CONFIG = None  # fred.logs does it, once the apps are ready

try:
    VERSION = importlib.metadata.version("fred")
except importlib.metadata.PackageNotFoundError:
    # Not installed: the image and a checkout have it beside the code.
    VERSION = tomllib.loads((BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

DEBUG = HOUSE.fred_debug
# A process without services signs nothing that another one must read.
SECRET_KEY = HOUSE.django_secret_key.get_secret_value() or secrets.token_urlsafe(50)
ALLOWED_HOSTS = list(HOUSE.fred_allowed_hosts)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "fred",
    "leases",
    "backends",
    "placements",
    "reconciliation",
    "tenants_api",
]
if importlib.util.find_spec("django_linear_migrations"):
    INSTALLED_APPS.insert(0, "django_linear_migrations")  # development: one line of migrations per app
# Tenant routes need none of these; only the admin server has sessions and pages.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "fred.urls"
ASGI_APPLICATION = "fred.asgi.application"
APPEND_SLASH = False
# Requests are bounded before Django sees them, by settings of ours; these would add answers of the framework's.
DATA_UPLOAD_MAX_MEMORY_SIZE = None
DATA_UPLOAD_MAX_NUMBER_FIELDS = None

USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = False
LANGUAGE_CODE = "en-us"

STATIC_URL = "/static/"
_static = BASE_DIR / "build" / "static"
# Collected in the image; in a checkout the apps' own files are served.
STATIC_ROOT = _static if _static.is_dir() or conf.command_of(sys.argv) == "collectstatic" else None
STORAGES = {"staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"}}
WHITENOISE_USE_FINDERS = True

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Every session gives up by itself: a lock after 2 s, a statement after 15 s, an idle transaction after 3 s.
# A server that vanished without a word answers nothing, so no limit of its own helps: TCP gives it up after 25 s.
_LINK = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
_SESSION = "-c lock_timeout=2000 -c statement_timeout=15000 -c idle_in_transaction_session_timeout=3000 -c TimeZone=UTC"
if HOUSE.database_url:
    _database = environ.Env.db_url_config(HOUSE.database_url.get_secret_value(), engine="fred.postgresql")
    _options = {"options": _SESSION, "application_name": f"fred {PROCESS}", "connect_timeout": 5, **_LINK}
    if PROCESS == "web":
        # Requests come and go on many threads; a pool keeps their connections few and warm.
        _options["pool"] = {"min_size": 1, "max_size": 8, "timeout": 5}
    DATABASES = {
        "default": {
            **_database,
            "OPTIONS": {**_database.get("OPTIONS", {}), **_options},
            # Long-lived threads of other processes keep theirs.
            "CONN_MAX_AGE": 0 if PROCESS == "web" else None,
            "CONN_HEALTH_CHECKS": True,
        }
    }
else:
    DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}

# For the pages about the API, and for `manage.py spectacular`, which writes tenants_api/openapi.json.
SPECTACULAR_SETTINGS = {
    "TITLE": "Tenant API",
    "DESCRIPTION": "What a compute provider on the Manifest Network serves to tenants, backends and operators.",
    "VERSION": "1",
    "LICENSE": {"name": "Apache-2.0"},
    "POSTPROCESSING_HOOKS": ["tenants_api.schema.complete"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "supportedSubmitMethods": []},  # the API is at another address
    "REDOC_DIST": "SIDECAR",
}

# Celery carries hints: a lost task costs two seconds, so nothing is kept, acknowledged late or retried by it.
CELERY_BROKER_URL = HOUSE.broker_url or "redis://127.0.0.1:6379/0"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 2, "socket_keepalive": True, "health_check_interval": 15}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_DEFAULT_QUEUE = "lifecycle"
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_SOFT_TIME_LIMIT = 120
CELERY_TASK_TIME_LIMIT = 150
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 0
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"  # in memory: a static table needs no file
CELERY_DB_REUSE_MAX = 1_000_000
CELERY_TIMEZONE = "UTC"
