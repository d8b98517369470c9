"""The one error body of the tenant API, and the errors that become it."""

from collections.abc import Mapping
from typing import Any

import orjson
from django.http import HttpResponse


class ApiError(Exception):
    """Ends a request with this status and exactly this text; callers never see anything else of what went wrong.

    ``reason`` is a third member of the body that few answers have.
    """

    def __init__(self, status: int, text: str, *, reason: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status} {text}")
        self.status = status
        self.text = text
        self.reason = reason
        self.headers = dict(headers or {})

    def response(self) -> HttpResponse:
        """The error envelope: `{"error": text, "code": status}`, then `reason` if there is one."""
        body: dict[str, Any] = {"error": self.text, "code": self.status}
        if self.reason:
            body["reason"] = self.reason
        return answer(body, status=self.status, headers=self.headers)


def answer(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Compact JSON with one line feed."""
    content = orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)
    return HttpResponse(content, status=status, headers={"Content-Type": "application/json", **(headers or {})})


def empty(status: int) -> HttpResponse:
    """A success without a body."""
    return HttpResponse(b"", status=status, headers={"Content-Type": "application/json", "Content-Length": "0"})


def unauthorized() -> ApiError:
    """Whoever it is, it is not shown why."""
    return ApiError(401, "unauthorized")


def internal() -> ApiError:
    """A source did not answer, or something of ours failed."""
    return ApiError(500, "internal server error")


def unavailable() -> ApiError:
    """What must not be guessed can't be known now."""
    return ApiError(503, "service temporarily unavailable")
