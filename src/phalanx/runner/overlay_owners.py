"""Whose a process of this node is, for the firewall: tasks without an address are in the node's own network.

They are told apart by their cgroup of v2, whatever account they have: each such cgroup that only tasks of one owner are
in has its owner's name as an attribute, by which a later runner knows it again. Without cgroups they are told apart by
their accounts, if these are mapped and no two users share one; without either none of them reaches an overlay address.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phalanx.runner.keeper.cgroup import THREADED

ROOT = Path("/sys/fs/cgroup")  # where nft looks for the paths of cgroups
ATTRIBUTE = "trusted.phalanx.owner"
BY_CGROUP, BY_ACCOUNT = "cgroup", "account"
NOT_TOLD_APART = (
    "tasks without an address reach no overlay address: neither cgroups of v2 nor accounts tell them apart"
)


class NodeTasks(NamedTuple):
    """What the firewall knows tasks without an address by."""

    cgroups: dict[int, dict[str, str]]  # owners by the path of a cgroup, by its level in the tree
    accounts: dict[int, str]  # owners by the number of an account


class TaskOwners:
    """The owners of the tasks of one runner that are in the node's own network."""

    def __init__(
        self,
        way: str = "",
        bases: Sequence[str] = (),
        uid_of: Callable[[str], int | None] = lambda _: None,
        root: Path = ROOT,
    ) -> None:
        """`way` is how they are told apart; `bases` are the node's folders of v2, one for each keeper."""
        self.way = way
        self._bases = bases
        self._uid_of = uid_of
        self._root = root
        self._top = root if (root / "cgroup.controllers").exists() else root / "unified"
        self._of: dict[str, str] = {}  # by folder

    def assign(self, folder: str, owner: str) -> bool:
        """Only tasks of this owner are in a cgroup from now on; False if that was known, or it is none of v2."""
        if self.way != BY_CGROUP or self._of.get(folder) == owner or not self._is_ours(folder):
            return False
        os.setxattr(folder, ATTRIBUTE, owner.encode())
        self._of[folder] = owner
        return True

    def scan(self) -> None:
        """Find what an earlier runner has assigned."""
        for base in self._bases if self.way == BY_CGROUP else ():
            for folder in (*_folders(base), *_folders(f"{base}/{THREADED}")):
                with suppress(OSError):
                    self._of.setdefault(folder, os.getxattr(folder, ATTRIBUTE).decode(errors="replace"))

    def known(self, owners: Iterable[str]) -> NodeTasks:
        """How tasks of these owners are recognised now; cgroups that are gone are forgotten."""
        wanted = set(owners)
        if self.way == BY_ACCOUNT:
            return NodeTasks({}, self._accounts(wanted))
        levels: dict[int, dict[str, str]] = {}
        for folder in [each for each, owner in self._of.items() if owner in wanted]:
            if not os.path.isdir(folder):  # noqa: PTH112 - for every one of many
                del self._of[folder]
                continue
            level = len(Path(folder).relative_to(self._top).parts)
            levels.setdefault(level, {})[str(Path(folder).relative_to(self._root))] = self._of[folder]
        return NodeTasks(levels, {})

    def _accounts(self, owners: set[str]) -> dict[int, str]:
        """An account that two of them have is nobody's."""
        users: dict[int, list[str]] = {}
        for owner in owners:
            if (uid := self._uid_of(owner)) is not None:
                users.setdefault(uid, []).append(owner)
        return {uid: found[0] for uid, found in users.items() if len(found) == 1}

    def _is_ours(self, folder: str) -> bool:
        return any(folder.startswith(f"{base}/") for base in self._bases)


def _folders(base: str) -> list[str]:
    try:
        with os.scandir(base) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []
