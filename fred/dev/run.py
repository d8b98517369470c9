"""`manage.py dev` from its first line to its last."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import orjson
from rich.console import Console

from fred.dev import children
from fred.dev.admin_user import ADMIN, let_in
from fred.dev.board import Board
from fred.dev.chain_admin import ChainAdminError
from fred.dev.demo import Demo
from fred.dev.folder import FolderInUseError, FolderLock, FolderUnusableError
from fred.dev.foreground import ServerStartError
from fred.dev.house import House, HouseError
from fred.dev.live import View
from fred.dev.options import Options
from fred.dev.ports import HOST, LISTENERS, PortTakenError
from fred.dev.supervisor import ChildDiedError
from fred.dev.teller import Teller

PROBLEMS = (
    ChainAdminError,
    ChildDiedError,
    FolderInUseError,
    FolderUnusableError,
    HouseError,
    PortTakenError,
    ServerStartError,
)


class Stopped(BaseException):
    """Somebody asked us to stop."""


def run(options: Options) -> int:
    """Start the house, show a lease living in it, stay or, with `once`, let it end; return the exit status.

    0 after a stop that was asked for, and after `once`; 1 when something could not be done, with its reason on
    standard error.
    """
    console = Console(force_terminal=False if options.plain else None)
    teller = Teller(console)
    try:
        with stopped_by_signals():
            # Before the folder and the ports: whoever is refused has wiped nothing and claimed nothing.
            if options.parent is not None and not children.end_with(options.parent):
                raise HouseError(f"process {options.parent}, named by --parent, did not start this one, or has ended")
            with FolderLock(options.folder), House(options, teller) as house:
                house.start()
                live(house)
    except Stopped:
        teller.done()
        teller.say("stopped")
        return 1 if options.once else 0
    except PROBLEMS as problem:
        teller.done()
        print(f"dev: {problem}", file=sys.stderr)
        return 1
    teller.done()
    teller.say("all stopped")
    return 0


def live(house: House) -> None:
    """Let the demo's tenant do what it does; without `once` stay afterwards."""
    options, teller = house.options, house.teller
    with Board(house.environments.database_url) as board:
        demo = Demo(house, board)
        seconds = demo.take_leases(options.leases)
        number = "the lease is" if options.leases == 1 else f"all {options.leases} leases are"
        teller.say(f"{number} ACTIVE, {seconds:.2f} s after the block")
        connection = demo.connection()
        house.open_admin()
        teller.done()
        teller.show(f"\nlease {demo.leases[0]} of {demo.tenant}")
        teller.show(orjson.dumps(connection, option=orjson.OPT_INDENT_2).decode())
        if options.once:
            seconds = demo.close_leases()
            teller.say(f"closed and torn down, {seconds:.2f} s after the block")
            return
        let_in(house)
        teller.show(f"\na token of it, good for 30 s:\n{demo.token()}\n\npaste these:\n{demo.recipe()}\n")
        if options.free_ports:
            teller.show("".join(f"{one.meaning}  {HOST}:{house.ports[one.name]}\n" for one in LISTENERS))
        teller.show(f"admin  {house.url('admin', '/admin/')}  user {ADMIN}  password {house.vault.admin_password}\n")
        View(house, board).stay()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise Stopped for the first SIGINT, SIGTERM or SIGHUP; while everything stops further ones change nothing."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
