"""The secrets of a development house: made once, kept in its folder, readable by its owner only."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Vault:
    """What only this house knows."""

    django_secret_key: str
    callback_secret: str
    admin_password: str

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the secrets at `path` (mode 0600), or make them there."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, TypeError, ValueError):
            vault = cls(secrets.token_urlsafe(50), secrets.token_urlsafe(40), secrets.token_urlsafe(12))
            write_private(path, json.dumps(asdict(vault), indent=2) + "\n")
            return vault


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read, not even for a moment."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    partial.replace(path)
