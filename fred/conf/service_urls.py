"""What the URLs of our own services may be. Nothing of a bad one is shown: a password may stand anywhere in it."""

from collections.abc import Callable, Iterable, Iterator
from urllib.parse import SplitResult, urlsplit

from fred.conf.house import HouseConfig
from fred.conf.rule import Rule

_POSTGRES = frozenset({"postgres", "postgresql"})
_VALKEY = frozenset({"redis", "rediss"})
_ENCODE = "write / # ? @ and : of a password percent-encoded"
_PORT = f"has no usable port; write host:port, and {_ENCODE}"


def _database(parts: SplitResult) -> Iterator[str]:
    if not parts.path.strip("/"):
        yield "names no database"


def _valkey(parts: SplitResult) -> Iterator[str]:
    number = parts.path.strip("/")
    if number and not (number.isascii() and number.isdigit()):
        yield "must end with the number of a database"


def _faults(text: str, schemes: frozenset[str], rest: Callable[[SplitResult], Iterable[str]]) -> Iterator[str]:
    """What is wrong, in words that hold nothing of the text."""
    try:
        parts = urlsplit(text)
    except ValueError:
        yield f"is not a URL; {_ENCODE}"
        return
    if parts.scheme not in schemes or "://" not in text:
        yield f"must begin with {' or '.join(f'{scheme}://' for scheme in sorted(schemes))}"
        return
    servers = parts.netloc.rpartition("@")[2].split(",") if schemes is _POSTGRES else [parts.netloc]
    try:
        for server in map(urlsplit, (f"//{server}" for server in servers)):  # PostgreSQL may be one of several
            server.port  # noqa: B018 - reading it is what checks it
            if not server.hostname:
                yield f"has no host; {_ENCODE}"
                return
    except ValueError:
        yield _PORT
        return
    yield from rest(parts)


def _service(
    key: str, schemes: frozenset[str], rest: Callable[[SplitResult], Iterable[str]], example: str
) -> Rule[HouseConfig]:
    def broken(house: HouseConfig) -> Iterator[str]:
        text = getattr(house, key).get_secret_value()
        if text:
            yield from (f"{key.upper()} {fault}" for fault in _faults(text, schemes, rest))

    return Rule((key,), broken, f"for example {example}")


SERVICE_URL_RULES: tuple[Rule[HouseConfig], ...] = (
    _service("database_url", _POSTGRES, _database, "postgres://fred:password@localhost:5432/fred"),
    _service("redis_url", _VALKEY, _valkey, "redis://localhost:6379/0"),
    _service("celery_broker_url", _VALKEY, _valkey, "redis://localhost:6379/1"),
)
