"""The program of a VPS: in whose container it serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from phalanx.runner.vps_options import ServerOptions, encode
from phalanx.vps.main import UNUSABLE


def test_it_does_not_move_in_with_another_process_that_has_the_pid_of_its_container(tmp_path: Path):
    (tmp_path / "server.json").write_bytes(encode(ServerOptions(home=str(tmp_path))))
    (tmp_path / "home").mkdir()
    with subprocess.Popen(["sleep", "60"]) as other:
        born = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        words = [sys.executable, "-m", "phalanx.vps", str(tmp_path), str(other.pid), str(born - 100)]
        try:
            done = subprocess.run(words, capture_output=True, timeout=20, check=False)
        finally:
            other.kill()
    assert (done.returncode, b"has ended" in done.stderr) == (UNUSABLE, True), done.stderr
