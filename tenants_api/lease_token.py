"""Print a tenant's token for a mnemonic, which is read from FRED_MNEMONIC or else from standard input."""

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from fred.decoding import DecodeError, decode_uuid
from fred.errors import PermanentError
from leases.chain.address import PREFIX
from leases.chain.errors import ChainError
from leases.chain.keys import SigningKey
from tenants_api import tokens

NAME = "lease-token"
_HASH_HEX = 64


class Fault(PermanentError):
    """No token can be made of this."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the console script; return its exit status."""
    parser = argparse.ArgumentParser(NAME, description=__doc__, allow_abbrev=False)
    add_flags(parser)
    return run(parser, parser.parse_args(argv))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; each may be written with one dash or two."""
    add = parser.add_argument
    add("-tenant", "--tenant", metavar="ADDR", default="", help="the tenant's address")
    add("-lease-uuid", "--lease-uuid", metavar="UUID", type=_lease, help="the lease, as it will stand in the path")
    add("-timestamp", "--timestamp", metavar="N", type=int, default=0, help="unix seconds; 0 means now")
    add("-prefix", "--prefix", default=PREFIX, help="bech32 prefix of addresses (default: %(default)s)")
    payload = parser.add_mutually_exclusive_group()
    payload.add_argument("-payload", "--payload", metavar="FILE", type=Path, help="make a token to upload this file")
    payload.add_argument("-meta-hash", "--meta-hash", metavar="HEX", help="make a token to upload what has this hash")


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Print the token on standard output, or what is wrong on standard error; return the exit status."""
    if not options.tenant or not options.lease_uuid:
        parser.print_usage(sys.stderr)
        sys.stderr.write(f"{NAME}: -tenant and -lease-uuid are required\n")
        return 1
    try:
        token = issue(options, _mnemonic(sys.stdin))
    except (Fault, OSError) as fault:
        sys.stderr.write(f"{NAME}: {fault}\n")
        return 1
    sys.stdout.write(f"{token}\n")
    return 0


def issue(options: argparse.Namespace, mnemonic: str) -> str:
    """Make the token. Raises Fault when the mnemonic is unusable or belongs to another address."""
    try:
        key = SigningKey.from_mnemonic(mnemonic)
    except ChainError as error:
        raise Fault(f"derive key from mnemonic: {error}") from None
    address = key.address(options.prefix)
    if address != options.tenant:
        raise Fault(f"address of the mnemonic {address} does not match tenant {options.tenant}")
    return tokens.mint(
        key,
        tenant=options.tenant,
        lease_uuid=options.lease_uuid,
        timestamp=options.timestamp or int(time.time()),
        meta_hash=_meta_hash(options),
    )


def _lease(text: str) -> str:
    """The text itself: token and path are compared as they are written."""
    try:
        decode_uuid(text)
    except DecodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a UUID") from None
    return text


def _meta_hash(options: argparse.Namespace) -> str | None:
    if options.payload is not None:
        return hashlib.sha256(options.payload.read_bytes()).hexdigest()
    given: str | None = options.meta_hash
    if given is not None and (len(given) != _HASH_HEX or not all(digit in "0123456789abcdefABCDEF" for digit in given)):
        raise Fault("-meta-hash must be 64 hexadecimal digits")
    return given


def _mnemonic(stdin: TextIO) -> str:
    """The mnemonic of the environment, else all of standard input; never a flag, which other users could see."""
    mnemonic = os.environ.get("FRED_MNEMONIC", "").strip() or stdin.read().strip()
    if not mnemonic:
        raise Fault("no mnemonic provided: set FRED_MNEMONIC or write it to standard input")
    return mnemonic
