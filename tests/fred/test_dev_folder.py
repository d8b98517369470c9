"""The folder of a house: one that this user may use, that is new, empty or of `dev`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fred.dev.folder import FolderLock, FolderUnusableError
from fred.dev.options import Options
from fred.dev.run import run

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")


@contextmanager
def as_nobody() -> Iterator[None]:
    """As the system's user without rights."""
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody can reach and change; the test runner's own is closed to others."""
    found = Path(tempfile.mkdtemp(prefix="fred-folder-"))
    found.chmod(0o777)
    yield found
    shutil.rmtree(found)


def refusal(folder: Path) -> str:
    """The one line with which a folder is refused."""
    with pytest.raises(FolderUnusableError) as told:
        FolderLock(folder).__enter__()
    [line] = str(told.value).splitlines()
    return line


@AS_ROOT
@pytest.mark.parametrize("mode", [0o755, 0o700, 0o711])
def test_a_folder_of_somebody_else_is_named_with_its_owner_and_what_helps(place, mode):
    folder = place / "a house"
    with FolderLock(folder):
        folder.chmod(mode)
    with as_nobody():
        line = refusal(folder)
    assert line == (
        f"{folder} belongs to root and is closed to nobody; take it over: sudo chown -R nobody '{folder}', "
        "or name another folder: --folder PATH"
    )


@AS_ROOT
@pytest.mark.parametrize("inner", ["lock", "logs", "postgres"])
def test_what_somebody_else_left_in_ones_own_folder_is_named_too(place, inner):
    folder = place / ".dev"
    with as_nobody(), FolderLock(folder):
        pass
    if inner == "lock":
        os.chown(folder / inner, 0, 0)
    else:
        (folder / inner).mkdir(mode=0o700)
    with as_nobody():
        line = refusal(folder)
    assert line.startswith(f"{folder / inner} belongs to root and is closed to nobody; take it over: sudo chown -R")
    assert f" {folder}, or" in line


@AS_ROOT
def test_a_folder_that_cannot_be_made_is_told_by_the_one_that_is_closed(place):
    place.chmod(0o755)
    with as_nobody():
        line = refusal(place / "one" / "two")
    assert line == (
        f"{place}/one/two cannot be made: {place} belongs to root and is closed to nobody; "
        "name another folder: --folder PATH"
    )


@AS_ROOT
def test_a_folder_that_its_owner_closed_is_opened_by_chmod(place):
    folder = place / ".dev"
    with as_nobody():
        folder.mkdir(mode=0o500)
        line = refusal(folder)
    assert line == f"{folder} is closed to its owner nobody; open it: chmod -R u+rwX {folder}"


@AS_ROOT
def test_root_leaves_nothing_in_the_folder_of_a_user(place):
    folder = place / ".dev"
    with as_nobody(), FolderLock(folder):
        pass
    line = refusal(folder)
    assert line == (
        f"{folder} belongs to nobody, and this is root, whose files nobody could not use any more; "
        "start it as nobody (sudo -u nobody …), or name another folder: --folder PATH"
    )
    assert {entry.stat().st_uid for entry in (folder, *folder.iterdir())} == {NOBODY}
    with as_nobody(), FolderLock(folder):
        pass


@AS_ROOT
def test_dev_says_it_in_one_line_and_without_a_trace(place, capsys):
    with FolderLock(place / ".dev"):
        pass
    with as_nobody():
        assert run(Options(folder=place / ".dev", plain=True)) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"dev: {place}/.dev belongs to root")
    assert len(told.err.splitlines()) == 1


def test_a_folder_with_other_things_is_left_alone(place):
    (place / "agent").mkdir()
    (place / "agent" / "work").write_text("mine")
    assert "holds things that are not of `dev`" in refusal(place)
    assert run(Options(folder=place, plain=True, fresh=True)) == 1
    assert (place / "agent" / "work").read_text() == "mine"


def test_a_file_in_its_place_is_told(place):
    (place / "file").touch()
    assert refusal(place / "file") == f"{place}/file cannot be used: File exists; name another: --folder PATH"
