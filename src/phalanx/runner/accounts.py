"""The accounts of this machine that tasks run as: which one a user of the cluster has, as its operator says.

Without a mapping every task has the runner's own account. With one, a task has the account of the user who submitted it
(the coordinator says who that is; no request can), or does not start. Root is nobody's account unless that is allowed.
The keeper starts such tasks through `setpriv`: a process with the user's id could be signalled by any task of that
user, so no part of ours ever has it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from pathlib import Path

from msgspec import Struct

from phalanx.core.model.resources import TaskAccounts
from phalanx.errors import ConfigError
from phalanx.runner.log_files import HOSTS, RESULTS_FOLDER

SAME = "same-name"
ANYBODY = "*"
RULES_MAX = 10_000
PROGRAM = "setpriv"


class NoAccount(Exception):
    """A user has no account here, or one that no task may have; the text is for that user."""


class Account(Struct, frozen=True):
    """One account, as far as its tasks need it."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}

    def prefix(self, program: str) -> list[str]:
        """The words before a command that make it run as this account, with no more rights than that has."""
        groups = ["--groups", ",".join(map(str, self.groups))] if self.groups else ["--clear-groups"]
        ids = ["--reuid", str(self.uid), "--regid", str(self.gid), *groups]
        return [program, *ids, "--inh-caps=-all", "--no-new-privs", "--"]


class Accounts:
    """The mapping of one runner."""

    def __init__(self, rules: dict[str, str] | None, allow_root: bool = False, program: str = "") -> None:
        self._rules = rules  # None: no mapping
        self._allow_root = allow_root
        self.program = program

    @property
    def are_mapped(self) -> bool:
        return self._rules is not None

    @property
    def told(self) -> TaskAccounts:
        """What the coordinator is told of them."""
        if self.are_mapped:
            return TaskAccounts(mapped=True, root=self._allow_root)
        return TaskAccounts(shared=account_name(os.geteuid()), root=os.geteuid() == 0)

    @classmethod
    def read(cls, text: str | None, allow_root: bool, state_dir: Path) -> Accounts:
        """The mapping in a setting; raises ConfigError where this runner cannot have one."""
        if not text:
            return cls(None)
        rules = _rules(text)
        if os.geteuid() != 0:
            raise ConfigError(
                f"runner.accounts = {text[:80]!r} needs a runner that is root: this one is"
                f" {account_name(os.geteuid())!r}",
                hint="start the runner as root, or leave the setting out: then all tasks have this account",
            )
        program = shutil.which(PROGRAM)
        if program is None:
            raise ConfigError(
                f"runner.accounts = {text[:80]!r} needs the program {PROGRAM}, which is not in PATH",
                hint="it is in the package util-linux",
            )
        _open_to_others(state_dir)
        return cls(rules, allow_root, program)

    def of(self, user: str) -> Account | None:
        """The account of a user; None for the runner's own. Raises NoAccount."""
        if self._rules is None:
            return None
        name = user if self._rules.get(ANYBODY) == SAME else self._rules.get(ANYBODY)
        name = self._rules.get(user, name)
        if not name or user == ANYBODY:
            raise NoAccount(
                f"user {user!r} has no account on this node: its operator names one in runner.accounts"
            )
        try:
            found = pwd.getpwnam(name)
        except (KeyError, ValueError):
            raise NoAccount(
                f"user {user!r} has the account {name!r}, which this node does not have"
            ) from None
        if found.pw_uid == 0 and not self._allow_root:
            raise NoAccount(
                f"user {user!r} has the account {name!r}, which is root: its operator allows that by"
                " runner.allow_root"
            )
        groups = tuple(sorted({*os.getgrouplist(name, found.pw_gid)}))
        return Account(name, found.pw_uid, found.pw_gid, groups, found.pw_dir, found.pw_shell or "/bin/sh")


def account_name(uid: int) -> str:
    """The name of an account, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _rules(text: str) -> dict[str, str]:
    if text.strip() == SAME:
        return {ANYBODY: SAME}
    rules: dict[str, str] = {}
    for part in text.split(";"):
        user, equals, name = (word.strip() for word in part.partition("="))
        if not equals or not user or not name or user in rules:
            raise ConfigError(
                f"runner.accounts: {part.strip()[:80]!r} cannot be read: expected {SAME}, or user=account"
                " for each user once, such as alice=alice;bob=lab (*=lab for all others)"
            )
        rules[user] = name
    if len(rules) > RULES_MAX:
        raise ConfigError(f"runner.accounts has {len(rules)} users, at most {RULES_MAX} are possible")
    return rules


def _open_to_others(state_dir: Path) -> None:
    """Tasks of other accounts reach their own folders through ours, whose contents they cannot list.

    Raises ConfigError if a folder above ours is closed to them.
    """
    real = state_dir.resolve()
    for folder in real.parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise ConfigError(
                f"runner.state_dir = {str(state_dir)!r}: tasks of other accounts cannot reach it, because {folder}"
                " is closed to them",
                hint="choose a folder such as /var/lib/phalanx",
            )
    for folder in (
        real,
        real / "logs",
        real / "logs" / RESULTS_FOLDER,
        real / "logs" / HOSTS,
        real / "checkpoints",
        real / "vps",
    ):
        folder.mkdir(mode=0o711, exist_ok=True)
        folder.chmod(0o711)
