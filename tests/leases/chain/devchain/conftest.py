"""The fixtures of a running chain."""

from __future__ import annotations

from tests.devchain_fixture import ask, devchain, manual_devchain

__all__ = ["ask", "devchain", "manual_devchain"]
