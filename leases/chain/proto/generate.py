"""Make the Python classes of the .proto files beside this file: `python leases/chain/proto/generate.py`.

The classes are checked in, so that nobody needs a compiler to run the product; run this after a change of a .proto
file and commit what it writes. With `--check` nothing is written: the exit status says whether the classes and the
definitions still agree.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SERVICES = {"auth", "authz", "bank", "billing", "sku", "tendermint", "tx"}


def compile_into(target: Path) -> None:
    """Compile every definition into `target`, which stands for the root of the repository."""
    google = Path(protoc.__file__).parent / "_proto"
    base = ["protoc", f"-I{ROOT}", f"-I{google}"]
    names = sorted(HERE.glob("*.proto"))
    plain = [str(path.relative_to(ROOT)) for path in names]
    with_services = [str(path.relative_to(ROOT)) for path in names if path.stem in SERVICES]
    if protoc.main([*base, f"--python_out={target}", f"--pyi_out={target}", *plain]):
        raise SystemExit("protoc refused the message definitions")
    if protoc.main([*base, f"--grpc_python_out={target}", *with_services]):
        raise SystemExit("protoc refused the service definitions")


def main(arguments: list[str]) -> int:
    """Write the classes, or with `--check` compare them with what is checked in."""
    if "--check" not in arguments:
        compile_into(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        compile_into(Path(folder))
        fresh = Path(folder) / HERE.relative_to(ROOT)
        different = [path.name for path in sorted(fresh.iterdir()) if path.read_bytes() != _stored(path.name)]
    for name in different:
        sys.stdout.write(f"{name} differs from its definition; run {Path(__file__).relative_to(ROOT)}\n")
    return 1 if different else 0


def _stored(name: str) -> bytes:
    path = HERE / name
    return path.read_bytes() if path.exists() else b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
