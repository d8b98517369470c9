"""From a request straight to its view: Django without middleware, and without what only middleware needs.

Views are plain functions whose answers are whole: none is asynchronous, atomic by a setting, or rendered later.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch, get_resolver

_ONE_FREE: Final = re.compile(r"([^<>]*)/<str:(\w+)>/([^<>/]+)")


class Straight:
    """Answers requests by the views of `ROOT_URLCONF`; what a view raises becomes the answer of an error handler."""

    def __init__(self) -> None:
        self._view: Callable[[HttpRequest], Any] = convert_exception_to_response(self._of_view)
        self._known: dict[tuple[str, str], tuple[Callable[..., Any], str, str]] = {}

    def response(self, request: HttpRequest) -> HttpResponse:
        """What the view of this request's path answers."""
        response: HttpResponse = self._view(request)
        return response

    def match(self, path: str) -> ResolverMatch:
        """The view of a path. Raises Resolver404 when there is none.

        Django tries route after route. So of a route whose last segment but one is free, all else fixed, what it found
        for one path is kept for all: nothing but that segment tells their matches apart.
        """
        head, _, last = path.rpartition("/")
        before, _, value = head.rpartition("/")
        known = self._known.get((before, last)) if value else None
        if known is not None:
            view, name, route = known
            return ResolverMatch(view, (), {name: value}, route=route)
        found = get_resolver().resolve(path)
        free = _ONE_FREE.fullmatch(f"/{found.route}")
        if free is not None and found.kwargs == {free[2]: value}:
            self._known[free[1], free[3]] = found.func, free[2], found.route
        return found

    def _of_view(self, request: HttpRequest) -> HttpResponse:
        match = request.resolver_match = self.match(request.path_info)
        response: HttpResponse = match.func(request, *match.args, **match.kwargs)
        return response
