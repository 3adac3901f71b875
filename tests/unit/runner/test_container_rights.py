"""What a user names for a container is opened with the rights of the user's account, and with no others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from phalanx.runner.containers.rights import files_as

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take on the rights of an account")
ACCOUNT = (1, 1, [1])


def test_another_users_process_leads_nowhere_and_our_rights_come_back(tmp_path: Path) -> None:
    inside = tmp_path / "closed" / "open"
    inside.mkdir(parents=True)
    inside.parent.chmod(0o700)
    process = subprocess.Popen(["sleep", "60"], cwd=inside)
    try:
        for path in (str(inside), f"/proc/{process.pid}/cwd", f"/proc/{process.pid}/root"):
            with pytest.raises(PermissionError), files_as(ACCOUNT):
                os.open(path, os.O_PATH)
        os.close(os.open(f"/proc/{process.pid}/cwd", os.O_PATH))
        assert [*inside.iterdir()] == []
    finally:
        process.kill()
        process.wait()
