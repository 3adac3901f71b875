"""`phalanx cancel`: by name, or all that fit at once."""

from __future__ import annotations

import pytest

from tests.support.fake_client import ID, Cli, FakeClient, a_job


@pytest.fixture
def busy(cluster: FakeClient) -> FakeClient:
    cluster.held = [a_job(f"{at:026d}", status, number=at) for at, status in ((3, "Running"), (2, "Pending"))]
    return cluster


def test_one_is_cancelled_by_what_names_it(cli: Cli, busy: FakeClient):
    assert cli("cancel", busy.held[0].id).code == 0
    assert ("cancel", busy.held[0].id) in busy.asked


def test_all_of_mine_are_listed_and_cancelled(cli: Cli, busy: FakeClient):
    said = cli("cancel", "--all", "--yes")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "2 jobs cancelled"
    assert all(call[1]["mine"] for call in busy.asked if call[0] == "jobs")
    assert [call[1] for call in busy.asked if call[0] == "cancel"] == [job.id for job in busy.held]


def test_name_user_and_queue_choose(cli: Cli, busy: FakeClient):
    cli("cancel", "--name", "train", "--user", "bob", "--queue", "long", "-y")
    asked = next(call[1] for call in busy.asked if call[0] == "jobs")
    assert (asked["name"], asked["user"], asked["queue"], asked["mine"]) == ("train", "bob", "long", False)


def test_a_script_has_to_say_yes(cli: Cli, busy: FakeClient):
    said = cli("cancel", "--all")
    assert said.code == 2
    assert "2 jobs (3 train, 2 train) would be cancelled: give --yes" in said.err
    assert not [call for call in busy.asked if call[0] == "cancel"]


def test_nothing_and_both_are_refused(cli: Cli, busy: FakeClient):
    assert cli("cancel").code == cli("cancel", ID, "--all").code == 2


def test_if_nothing_fits_it_is_said(cli: Cli, cluster: FakeClient):
    said = cli("cancel", "--all", "--yes")
    assert (said.code, "no matching jobs" in said.err) == (0, True)


def test_many_at_once_leave_out_vpss_whose_files_would_be_removed(cli: Cli, busy: FakeClient):
    busy.held[0].kind = "vps"
    said = cli("cancel", "--all", "--yes")
    assert [call[1] for call in busy.asked if call[0] == "cancel"] == [busy.held[1].id]
    assert "1 VPS (3 train) left running: phalanx vps stop ends one" in said.err
