"""The token vectors, as the tests of this folder use them."""

import json
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "vectors" / "tenant-auth.json").read_text("utf-8")
)
KEYS = {key["id"]: key for key in VECTORS["keys"]}
LEASE = "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
ALICE = KEYS["alice"]["address"]["manifest"]
BOB = KEYS["bob"]["address"]["manifest"]
MNEMONIC = KEYS["carol"]["origin"]["mnemonic"]
CAROL = KEYS["carol"]["address"]["manifest"]


def vector(id_: str) -> dict[str, Any]:
    """The accept or reject vector of this name."""
    return next(entry for entry in (*VECTORS["accept"], *VECTORS["reject"]) if entry["id"] == id_)
