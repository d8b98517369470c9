"""`manage.py` as an operator runs it, without importing the libraries each time.

One process imports them and is forked for each command, which reads what is ours anew, with arguments and an
environment of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 180
LIBRARIES = (
    "bcrypt",
    "celery.app.base",
    "celery.fixups.django",
    "celery.worker",
    "coincurve",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.x509",
    "django.contrib.auth.hashers",
    "django.contrib.postgres.fields",
    "django.contrib.postgres.indexes",
    "django.core.management",
    "django.db.backends.postgresql.base",
    "django.db.migrations.writer",
    "django.db.models",
    "django.views.debug",
    "environ",
    "google.protobuf.internal.builder",
    "google.protobuf.timestamp_pb2",
    "grpc",
    "kombu.common",
    "msgspec",
    "orjson",
    "prometheus_client.multiprocess",
    "psutil",
    "psycopg_pool",
    "pycurl",
    "pydantic",
    "redis.asyncio",
    "rich.live",
    "structlog",
    "yaml",
)
"""What needs no settings and starts no thread; a command imports the rest by itself."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended and what it said."""

    returncode: int
    stdout: str
    stderr: str


class Commands:
    """`with Commands(folder) as manage: manage("backends", "list", variables=good())`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Self:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", __spec__.name],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End the parent; each command ended before."""
        self._parent.communicate(timeout=COMMAND_SECONDS)

    def __call__(self, *arguments: str, variables: dict[str, str], stdin: str = "") -> Done:
        """Run `manage.py` with these arguments and, but for PATH, with nothing but these variables."""
        said, complained = self.folder / "stdout", self.folder / "stderr"
        (self.folder / "stdin").write_text(stdin, encoding="utf-8")
        asked = {"arguments": arguments, "variables": variables, "folder": str(self.folder)}
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(asked) + "\n")
        self._parent.stdin.flush()
        status = int(self._parent.stdout.readline())
        return Done(status, said.read_text(encoding="utf-8"), complained.read_text(encoding="utf-8"))


def main() -> None:
    """Serve commands until standard input ends. In a child it is left the way the command ends."""
    for name in LIBRARIES:
        importlib.import_module(name)
    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            signal.alarm(COMMAND_SECONDS)
            _become(**json.loads(line))
            runpy.run_path("manage.py", run_name="__main__")
            return
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - the answer


def _become(*, arguments: list[str], variables: dict[str, str], folder: str) -> None:
    """Take the arguments, the variables and the files of a command."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        with Path(folder, name).open(mode, encoding="utf-8") as file:
            os.dup2(file.fileno(), number)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - open while it lives
    path = os.environ["PATH"]
    os.environ.clear()
    os.environ.update({"PATH": path, **variables})
    sys.argv[:] = ["manage.py", *arguments]


if __name__ == "__main__":
    main()
