"""Project quotas where there are none, as on most machines; where there are, `tests/guest/disk_quota.py` tries them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.runner.project_quota import ProjectQuotas, project_of, who_is_held
from phalanx.runner.scratch import ScratchFolders, mount_tmpfs, unmount

MIB = 1 << 20


@pytest.fixture
def without_quotas(tmp_path: Path) -> Path:
    """A folder on a filesystem that never has project quotas."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() == 0:
        mount_tmpfs(folder, MIB)
    return folder


def test_a_filesystem_without_quotas_holds_nobody_and_keeps_nothing_of_the_trial(without_quotas: Path):
    try:
        assert who_is_held(without_quotas) == "nobody"
        assert list(without_quotas.iterdir()) == []
        assert project_of(without_quotas) == 0
        quotas = ProjectQuotas(without_quotas)
        with pytest.raises(OSError, match="quotactl_fd"):
            quotas.give(without_quotas, MIB)
        quotas.take_back(1)  # of others: nothing is done
        quotas.close()
    finally:
        unmount(without_quotas)


@pytest.mark.parametrize(
    ("hold", "has_accounts", "word"),
    [
        ("nobody", True, "tmpfs"),
        ("accounts", True, "quota"),
        ("accounts", False, "tmpfs"),  # tasks are root's, whom ext4 lets pass
        ("all", False, "quota"),
    ],
)
def test_a_quota_is_said_to_hold_only_if_it_holds_all_tasks(
    tmp_path: Path, hold: str, has_accounts: bool, word: str
):
    folders = ScratchFolders(tmp_path / "s", MIB, may_mount=True, quotas_hold=hold, has_accounts=has_accounts)
    assert folders.held_by == word
