"""What is installed: the package, and the proto for those who write runners and clients in other languages."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.tidy.source import ROOT


def test_the_wheel_holds_the_proto_and_its_descriptors(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        protos = {name: found.read(name) for name in found.namelist() if name.endswith((".proto", ".binpb"))}
    source = ROOT / "proto/phalanx/v1"
    assert protos == {
        **{f"phalanx/proto/phalanx/v1/{path.name}": path.read_bytes() for path in source.iterdir()},
        "phalanx/rpc/v1.binpb": (ROOT / "src/phalanx/rpc/v1.binpb").read_bytes(),
    }
