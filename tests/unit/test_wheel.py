"""What is installed: the package, and the proto for those who write runners and clients in other languages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from phalanx.dashboard import STATIC
from tests.tidy.source import ROOT


def test_the_wheel_holds_the_proto_its_descriptors_and_the_pages_of_the_dashboard(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        pages = {name for name in found.namelist() if name.startswith("phalanx/dashboard/static/")}
        protos = {name: found.read(name) for name in found.namelist() if name.endswith((".proto", ".binpb"))}
    source = ROOT / "proto/phalanx/v1"
    assert protos == {
        **{f"phalanx/proto/phalanx/v1/{path.name}": path.read_bytes() for path in source.iterdir()},
        "phalanx/rpc/v1.binpb": (ROOT / "src/phalanx/rpc/v1.binpb").read_bytes(),
    }
    built = {f"phalanx/dashboard/static/{path.relative_to(STATIC).as_posix()}" for path in files_of(STATIC)}
    assert "phalanx/dashboard/static/index.html" in built or not must_be_built()
    assert pages == built


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def must_be_built() -> bool:
    """Whether this checkout has a dashboard, or has to have one."""
    return (STATIC / "index.html").is_file() or bool(os.environ.get("CI"))
