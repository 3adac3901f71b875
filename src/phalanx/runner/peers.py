"""Who else is in a job, by name: host names of members, the addresses they stand for, and the hosts file that says so.

A member is called `{job}-{group}-{job_index}-{completion_index}`, as JobSet names pods, and resolved as that and
`.{subdomain}`. Its address is its own in the overlay network if it has one, else its node's. Who stands where is in the
roll, which the coordinator wrote; a task that is alone knows itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from phalanx.core.model.orders import Brief, Roll
from phalanx.runner.log_files import LogPath

HOSTNAME_MAX = 63  # characters of a label; a longer name is told, and not set
_LOCAL = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


class Member(NamedTuple):
    """One task of a job, as others find it."""

    position: int
    hostname: str
    address: str


def hostname_of(job: str, group: str, tasks: int, replicas: int, within: int) -> str:
    """The host name of the task at this place in its group."""
    replica, place = divmod(within, max(1, tasks // max(1, replicas)))
    return f"{job or 'job'}-{group or job or 'job'}-{replica}-{place}".lower().replace("_", "-")


def own_hostname(brief: Brief, position: int) -> str:
    within = position - brief.group_first
    return hostname_of(brief.name, brief.group_name, brief.group_tasks, brief.replicas, within)


def subdomain_of(brief: Brief) -> str:
    """What stands behind the host names of a job's members."""
    return brief.subdomain or (brief.name or "job").lower().replace("_", "-")


def members_of(brief: Brief, roll: Roll | None) -> list[Member]:
    """The members in the order of their ranks; none if there is no roll, or an older coordinator's, without groups."""
    if roll is None or not roll.groups:
        return []
    return [
        Member(position, _named(brief, roll, position), _address(roll, at, place))
        for at, (position, place) in enumerate(roll.members)
    ]


def hosts_text(members: list[Member], subdomain: str, own: Member) -> str:
    """A hosts file in which every member is found, by its whole name and by its host name; this one always."""
    known = members if any(each.position == own.position for each in members) else [own, *members]
    lines = [
        f"{each.address}\t{each.hostname}.{subdomain} {each.hostname}\n" for each in known if each.address
    ]
    return _LOCAL + "".join(lines)


def write_hosts(path: LogPath, text: str) -> None:
    """Write a hosts file in place; a task that has it bound over its own sees the change."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o644)
    except FileNotFoundError:
        Path(path).parent.mkdir(mode=0o711, parents=True, exist_ok=True)  # nobody sees whose files are there
        fd = os.open(path, flags, 0o644)
    try:
        os.fchmod(fd, 0o644)  # whatever the umask: tasks of other accounts read it
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def can_set_names() -> bool:
    """Whether tasks can have a host name and a hosts file of their own here: tried once, by a program that does so."""
    program = shutil.which("unshare")
    if os.geteuid() != 0 or program is None:
        return False
    try:
        done = subprocess.run(
            [program, "--mount", "--uts", "true"], check=False, capture_output=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _named(brief: Brief, roll: Roll, position: int) -> str:
    for name, first, tasks, replicas in roll.groups:
        if first <= position < first + tasks:
            return hostname_of(brief.name, name, tasks, replicas, position - first)
    return hostname_of(brief.name, "", 1, 1, position)


def _address(roll: Roll, at: int, place: int) -> str:
    own = roll.addresses[at] if at < len(roll.addresses) else ""
    node, address = roll.nodes[place]
    return own or address or node
