"""Views of nobody's domain: health, readiness, metrics, and the errors that the router makes."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, Final

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from fred import checks
from fred.address_limit import OVER_LIMIT
from fred.exposition import render
from fred.health import Prober, Report, Verdict
from tenants_api.errors import ApiError

View = Callable[..., HttpResponse]
_GZIP_LEVEL: Final = 5


def json(value: Any, status: int = 200) -> HttpResponse:
    """Compact JSON with one line feed, `application/json`."""
    body = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return HttpResponse(body, content_type="application/json", status=status)


def error(request: HttpRequest, text: str, status: int, **details: Any) -> HttpResponse:
    """The error envelope; `details` as of `ApiError`."""
    return ApiError(status, text, **details).response(request)


def read_only(view: View) -> View:
    """Let GET and HEAD pass; others get 405."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method not in {"GET", "HEAD"}:
            return error(request, "method not allowed", 405, headers={"Allow": "GET, HEAD"})
        return view(request, *args, **kwargs)

    return guarded


@read_only
def health(request: HttpRequest) -> HttpResponse:
    """Liveness: 200 whenever this process can answer, whatever the checks say.

    Who asks more often than may be gets what was last known, and nobody is asked for it.
    """
    scope: Mapping[str, Any] = getattr(request, "scope", {})
    known = _prober().last if OVER_LIMIT in scope else None
    return json(_body_of(known or _prober().report()))


@read_only
def ready(_: HttpRequest) -> HttpResponse:
    """The same body; 503 when the verdict is unhealthy."""
    report = _prober().report()
    return json(_body_of(report), 503 if report.verdict is Verdict.UNHEALTHY else 200)


@read_only
def exposition(request: HttpRequest) -> HttpResponse:
    """All metrics of all processes here, as Prometheus or OpenMetrics text."""
    body, content_type = render(request.headers.get("Accept", ""))
    answer = HttpResponse(body, content_type=content_type)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        answer.content = gzip.compress(answer.content, compresslevel=_GZIP_LEVEL, mtime=0)
        answer["Content-Encoding"] = "gzip"
    return answer


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001
    """400 of the framework, as an envelope."""
    return error(request, "bad request", 400)


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001
    """403 of the framework, as an envelope."""
    return error(request, "forbidden", 403)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001
    """404 of the router, as an envelope."""
    return error(request, "not found", 404)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: the exception is in the log, never in the answer."""
    return error(request, "internal server error", 500)


@lru_cache(maxsize=1)
def _prober() -> Prober:
    return checks.prober()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether Django's record has the trace of a bug: every answer by its status is in the access log already."""
    return bool(record.exc_info)


logging.getLogger("django.request").addFilter(_is_news)


def _body_of(report: Report) -> dict[str, Any]:
    return report.as_body(str(settings.FRED.provider_uuid))
