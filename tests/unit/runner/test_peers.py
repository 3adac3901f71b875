"""Host names of members, and hosts files in which they find each other."""

from __future__ import annotations

import stat
from pathlib import Path

from phalanx.core.model.job import Command
from phalanx.core.model.orders import Brief, Roll
from phalanx.runner.log_files import log_path
from phalanx.runner.peers import Member, hosts_text, members_of, own_hostname, subdomain_of, write_hosts

BRIEF = Brief(
    "j", 1, Command(("true",)), "Exp_1", "default", "j", 5, None, 5.0, None, "worker", 1, 4, 2, 3, names=True
)
ROLL = Roll(
    "j",
    1,
    (("n1", "192.0.2.1"), ("n2", "")),
    ((0, 0), (1, 0), (4, 1)),
    addresses=("10.128.0.2", "", ""),
    groups=(("head", 0, 1, 1), ("worker", 1, 4, 2)),
)


def test_a_member_is_called_by_job_group_job_index_and_completion_index_in_lower_case():
    assert [own_hostname(BRIEF, position) for position in range(1, 5)] == [
        "exp-1-worker-0-0", "exp-1-worker-0-1", "exp-1-worker-1-0", "exp-1-worker-1-1",
    ]  # fmt: skip


def test_members_are_found_at_their_own_address_or_at_their_nodes():
    assert members_of(BRIEF, ROLL) == [
        Member(0, "exp-1-head-0-0", "10.128.0.2"),
        Member(1, "exp-1-worker-0-0", "192.0.2.1"),
        Member(4, "exp-1-worker-1-1", "n2"),
    ]
    assert members_of(BRIEF, None) == []


def test_a_hosts_file_has_every_member_and_this_one_always():
    text = hosts_text(members_of(BRIEF, ROLL), subdomain_of(BRIEF), Member(2, "me", "10.128.0.9"))
    assert text.splitlines()[0] == "127.0.0.1\tlocalhost"
    assert "10.128.0.9\tme.exp-1 me" in text
    assert "10.128.0.2\texp-1-head-0-0.exp-1 exp-1-head-0-0" in text
    assert text.count("\n") == 6


def test_a_hosts_file_is_written_in_place_and_can_be_read_by_all(tmp_path: Path):
    path = log_path(tmp_path, "j", 0, 1, "hosts")
    write_hosts(path, "a long text\n")
    before = Path(path).stat().st_ino
    write_hosts(path, "short\n")
    now = Path(path).stat()
    assert (Path(path).read_text(), now.st_ino, stat.S_IMODE(now.st_mode)) == ("short\n", before, 0o644)
    assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o711, "whose there are is seen by nobody"
