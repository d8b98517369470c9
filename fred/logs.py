"""Logs: one line per record on standard output, JSON or text, context bound at the door. No Django inside.

Events are constants of the caller (`log.info("lease acknowledged after provisioning", lease_uuid=…)`); values go
into fields. What could carry junk is cut, what is secret never gets here.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TextIO
from uuid import UUID

import orjson
import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars

MAX_TEXT = 2048
MAX_JUNK = 128
FULL_AGAIN_S = 60.0
"""How long after the traceback of an outage no other of one is written in full."""
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_NAMES = {"warning": "WARN", "critical": "ERROR", "exception": "ERROR"}
_SELF_WILLED = ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "celery.task", "django", "django.server")
_QUIET = ("uvicorn.access", "kombu", "amqp", "celery.redirected", "httpcore", "urllib3")

_QUOTED = re.compile(r'[\s="\\]')

Record = MutableMapping[str, Any]


def set_up(
    *,
    level: str,
    output: Literal["json", "text"],
    process: str,
    to_stdout: bool = True,
    is_outage: Callable[[BaseException], bool] = lambda _: False,
) -> None:
    """Send everything, also what libraries log, to standard output in this format and from this level on.

    A command whose own output is its result logs to standard error instead. While a service is away everything that
    needs it fails in the same way: of exceptions that are such an ``is_outage`` only one a minute has its traceback.
    Calling it again replaces the former.
    """
    shared: list[structlog.typing.Processor] = [
        merge_contextvars,
        _Process(process),
        _name_and_time,
        _Tracebacks(is_outage),
        structlog.processors.format_exc_info,
        _plain,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if output == "json"
        else structlog.processors.LogfmtRenderer(
            key_order=["time", "level", "msg"], drop_missing=True, bool_as_flag=False
        )
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = _Output("stdout" if to_stdout else "stderr")
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    global _bulk  # noqa: PLW0603 - the format belongs to the process, as its handler does
    _bulk = _Bulk(handler, process, output)
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Output)]:
        root.removeHandler(old)
    root.addHandler(handler)
    for name in _SELF_WILLED:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    set_level(level)


def set_level(level: str) -> None:
    """From now on log this level and above: debug, info, warn or error."""
    logging.getLogger().setLevel(_LEVELS[level])


def lines(event: str, records: Sequence[Mapping[str, str | float]]) -> None:
    """Log the same event at INFO once for each of these records, all in one write.

    For what thousands of requests a second leave: a logger costs more for a line than the rest of a small request.
    The lines are those of ``log.info``, of plain text and numbers only and without bound context.
    """
    if _bulk is not None and logging.getLogger().isEnabledFor(logging.INFO):
        _bulk.write(event, records)


@contextmanager
def bound(**context: object) -> Iterator[None]:
    """Add these fields to every record made inside, in this thread or task."""
    with bound_contextvars(**context):
        yield


def clean(text: str, limit: int = MAX_JUNK) -> str:
    """Received text fit for a log: no control characters, cut at a character boundary."""
    printable = "".join(character if character.isprintable() else "�" for character in text[: limit + 1])
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


def chain_of(error: BaseException) -> str:
    """An exception and its causes on one line."""
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < 8:
        parts.append(f"{type(current).__name__}: {current}".rstrip(": "))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return clean(" <- ".join(parts), MAX_TEXT)


class _Output(logging.StreamHandler[TextIO]):
    """Writes to whatever is standard output (or error) at that moment, as a test runner exchanges it."""

    def __init__(self, name: str) -> None:
        super().__init__(getattr(sys, name))
        self._name_of_stream = name

    def current(self) -> TextIO:
        """The stream as it is now."""
        stream: TextIO = getattr(sys, self._name_of_stream)
        return stream

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = self.current()
        super().emit(record)


class _Bulk:
    """Writes many plain lines at once to where the handler writes."""

    def __init__(self, handler: "_Output", process: str, output: str) -> None:
        self._handler = handler
        self._process = process
        self._render = _as_json if output == "json" else _as_text

    def write(self, event: str, records: Sequence[Mapping[str, str | float]]) -> None:
        head = {"time": _stamp(time.time()), "level": "INFO", "msg": event}
        tail = {"process": self._process, "pid": os.getpid()}
        text = "".join([self._render({**head, **record, **tail}) for record in records])
        with self._handler.lock or nullcontext():
            stream = self._handler.current()
            stream.write(text)
            stream.flush()


_bulk: _Bulk | None = None


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _as_json(record: Mapping[str, object]) -> str:
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE).decode()


def _as_text(record: Mapping[str, object]) -> str:
    return " ".join([f"{key}={_worded(value)}" for key, value in record.items()]) + "\n"


def _worded(value: object) -> str:
    text = str(value)
    if text.isalnum() or not _QUOTED.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class _Process:
    """Adds the process and its id, read at each record because a fork changes it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, _logger: object, _method: str, record: Record) -> Record:
        record["process"] = self._name
        record["pid"] = os.getpid()
        return record


class _Tracebacks:
    """Leaves an outage's exception as a text of one line, but for the first in a while."""

    def __init__(self, is_outage: Callable[[BaseException], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_outage = is_outage
        self._clock = clock
        self._lock = threading.Lock()
        self._full_at = float("-inf")

    def __call__(self, _logger: object, _method: str, record: Record) -> Record:
        error = _raised(record.get("exc_info"))
        if error is not None and self._is_outage(error) and not self._may_be_full():
            del record["exc_info"]
            record.setdefault("error", error)
        return record

    def _may_be_full(self) -> bool:
        with self._lock:
            now = self._clock()
            if now - self._full_at < FULL_AGAIN_S:
                return False
            self._full_at = now
            return True


def _raised(exc_info: object) -> BaseException | None:
    """The exception of a record, in each of the forms in which loggers are given it."""
    if exc_info is True or exc_info == 1:
        return sys.exception()
    if isinstance(exc_info, tuple):
        exc_info = exc_info[1]
    return exc_info if isinstance(exc_info, BaseException) else None


def _name_and_time(_logger: object, method: str, record: Record) -> Record:
    """`time`, `level` and `msg` first, as the contract names them."""
    now = datetime.now(UTC)
    foreign = record.get("_record")
    level = foreign.levelname.lower() if isinstance(foreign, logging.LogRecord) else method
    head = {
        "time": now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z",
        "level": _NAMES.get(level, level.upper()),
        "msg": record.pop("event", ""),
    }
    rest = dict(record)
    record.clear()
    record.update(head)
    record.update(rest)
    return record


def _plain(_logger: object, _method: str, record: Record) -> Record:
    """Values as text, numbers, lists and maps; long text cut."""
    for key, value in record.items():
        if not key.startswith("_"):
            record[key] = _value(value)
    return record


def _value(value: object) -> object:
    result: object
    match value:
        case None | bool() | int() | float():
            result = value
        case str():
            result = value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
        case BaseException():
            result = chain_of(value)
        case timedelta():
            result = f"{value.total_seconds():g}s"
        case datetime():
            result = value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case UUID():
            result = str(value)
        case bytes():
            result = f"<{len(value)} bytes>"
        case Mapping():
            result = {str(key): _value(inner) for key, inner in list(value.items())[:50]}
        case list() | tuple() | set() | frozenset():
            result = [_value(inner) for inner in list(value)[:50]]
        case _:
            result = clean(str(value), MAX_TEXT)
    return result
