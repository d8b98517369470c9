"""Views of nobody's domain: health, readiness, metrics, and the errors that the router makes."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from fred import checks
from fred.exposition import render
from fred.health import Prober, Verdict

View = Callable[..., HttpResponse]
_GZIP_LEVEL: Final = 5


def json(value: Any, status: int = 200) -> HttpResponse:
    """Compact JSON with one line feed, `application/json`."""
    body = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    return HttpResponse(body, content_type="application/json", status=status)


def error(text: str, status: int) -> HttpResponse:
    """The error envelope: `{"error": text, "code": status}`."""
    return json({"error": text, "code": status}, status)


def read_only(view: View) -> View:
    """Let GET and HEAD pass; others get 405."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.method not in {"GET", "HEAD"}:
            answer = error("method not allowed", 405)
            answer["Allow"] = "GET, HEAD"
            return answer
        return view(request, *args, **kwargs)

    return guarded


@read_only
def health(_: HttpRequest) -> HttpResponse:
    """Liveness: 200 whenever this process can answer, whatever the checks say."""
    return json(_report()[1])


@read_only
def ready(_: HttpRequest) -> HttpResponse:
    """The same body; 503 when the verdict is unhealthy."""
    verdict, body = _report()
    return json(body, 503 if verdict is Verdict.UNHEALTHY else 200)


@read_only
def exposition(request: HttpRequest) -> HttpResponse:
    """All metrics of all processes here, as Prometheus or OpenMetrics text."""
    body, content_type = render(request.headers.get("Accept", ""))
    answer = HttpResponse(body, content_type=content_type)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        answer.content = gzip.compress(answer.content, compresslevel=_GZIP_LEVEL, mtime=0)
        answer["Content-Encoding"] = "gzip"
    return answer


def bad_request(_: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001
    """400 of the framework, as an envelope."""
    return error("bad request", 400)


def forbidden(_: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001
    """403 of the framework, as an envelope."""
    return error("forbidden", 403)


def not_found(_: HttpRequest, exception: Exception | None = None) -> HttpResponse:  # noqa: ARG001
    """404 of the router, as an envelope."""
    return error("not found", 404)


def server_error(_: HttpRequest) -> HttpResponse:
    """500: the exception is in the log, never in the answer."""
    return error("internal server error", 500)


@lru_cache(maxsize=1)
def _prober() -> Prober:
    return checks.prober()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether Django's record is more than the 503 of a probe: the change of a verdict is logged where it is made."""
    request = getattr(record, "request", None)
    return bool(record.exc_info) or getattr(request, "path", "") not in {"/health", "/readyz"}


logging.getLogger("django.request").addFilter(_is_news)


def _report() -> tuple[Verdict, dict[str, Any]]:
    report = _prober().report()
    return report.verdict, report.as_body(str(settings.FRED.provider_uuid))
