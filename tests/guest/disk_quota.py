"""Run in the guest of `scripts/cgroup-v2`: scratch folders held to their size by project quotas, on ext4 and XFS.

The disks are mounted already. A line is `ok NAME` or `FAILED NAME: what was seen`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback
from pathlib import Path

from phalanx.runner.project_quota import ProjectQuotas, project_of, who_is_held
from phalanx.runner.scratch import VARIABLE, ScratchFolders

MIB = 1 << 20
SIZE = 4 * MIB
NOBODY = 65534
KEY, OTHER, ROOTS = ("01abc", 0, 1), ("01abc", 1, 1), ("01abc", 2, 1)
WRITE = (
    "import sys\nwith open(sys.argv[1], 'wb') as file:\n    for _ in range(256): file.write(bytes(1 << 16))\n"
)


def written(folder: str, uid: int = NOBODY) -> int:
    """How much of 16 MiB a process of this user can write there."""
    path = Path(folder) / "file"
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", WRITE, str(path)],
        user=uid,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return path.stat().st_size


async def holds(disk: Path, whom: str) -> object:
    root = disk / "scratch"
    root.mkdir()
    assert who_is_held(root) == whom, who_is_held(root)
    assert list(root.iterdir()) == [], "the trial leaves nothing"
    folders = ScratchFolders(root, SIZE, has_accounts=True)
    assert folders.held_by == "quota"
    first = folders.make(KEY, (NOBODY, NOBODY))[VARIABLE]
    other = folders.make(OTHER, (NOBODY, NOBODY))[VARIABLE]
    seen = [written(first), written(other)]
    assert all(SIZE // 2 < each <= SIZE for each in seen), seen
    roots = folders.make(ROOTS)[VARIABLE]
    of_root = written(roots, 0)
    assert of_root <= SIZE, of_root  # by a quota that holds root, too, else by a tmpfs
    assert Path(roots).is_mount() == (whom != "all")
    return seen, of_root


async def is_given_back(disk: Path, _whom: str) -> object:
    root = disk / "scratch"
    quotas = ProjectQuotas(root)
    ids = [project_of(root / f"01abc-{number}-1") for number in range(2)]
    assert len(set(ids)) == 2
    assert all(quotas.use(id).limit_bytes == SIZE for id in ids), ids
    again = ScratchFolders(root, SIZE, has_accounts=True)  # as a runner does that starts again
    again.sweep([OTHER])
    assert [path.name for path in root.iterdir()] == ["01abc-1-1"]
    assert quotas.use(ids[0]).limit_bytes == 0
    assert quotas.use(ids[1]).limit_bytes == SIZE, "it may still run"
    again.close(OTHER)
    await again.settled()
    assert quotas.use(ids[1]).limit_bytes == 0
    assert list(root.iterdir()) == []
    return ids


async def main() -> int:
    failed = 0
    for disk, whom in (("/disks/ext4", "accounts"), ("/disks/xfs", "all")):
        for part in (holds, is_given_back):
            name = f"quota on {Path(disk).name} {part.__name__.replace('_', ' ')}"
            try:
                seen = await part(Path(disk), whom)
                sys.stdout.write(f"ok {name}: {seen}\n")
            except Exception:  # all parts are told
                failed += 1
                sys.stdout.write(f"FAILED {name}: {traceback.format_exc()}\n")
            sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
