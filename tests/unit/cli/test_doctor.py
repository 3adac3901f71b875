"""`phalanx doctor` without a cluster: what it finds of the machine, and that no check can hang it."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from phalanx.cli.doctor_checks import DoctorLine, ok, run_checks
from phalanx.cli.doctor_cluster import cluster_checks
from phalanx.cli.doctor_machine import machine_checks
from phalanx.config import load
from phalanx.errors import Unavailable


def lines_of(folder: Path, **settings: object) -> dict[str, list[DoctorLine]]:
    given = load(
        {"state_dir": folder, **{name.replace("__", "."): value for name, value in settings.items()}}
    )
    found: dict[str, list[DoctorLine]] = {}
    for line in run_checks([*machine_checks(given), *cluster_checks(given)]):
        found.setdefault(line.check, []).append(line)
    return found


def states(found: dict[str, list[DoctorLine]], check: str) -> list[str]:
    return [line.state for line in found[check]]


def test_a_machine_without_a_cluster_is_no_failure(tmp_path: Path) -> None:
    found = lines_of(tmp_path / "state")
    assert [line for lines in found.values() for line in lines if line.state == "fail"] == []
    assert "phalanx up" in found["cluster"][0].fix
    assert all(line.fix for lines in found.values() for line in lines if line.state != "ok")


def test_folders_that_are_open_and_ports_that_are_taken_are_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = lines_of(tmp_path, coordinator__port=port)
    assert (states(found, "state folder"), f"chmod 700 {tmp_path}" in found["state folder"][0].fix) == (
        ["warn"],
        True,
    )
    assert states(found, "ports")[0] == "warn"
    assert str(port) in found["ports"][0].text


def test_members_of_etcd_are_tried_each(tmp_path: Path) -> None:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        there.listen()
        store = f"etcd://127.0.0.1:{there.getsockname()[1]},127.0.0.1:9/x"
        found = lines_of(tmp_path, coordinator__store=store)
    assert states(found, "store") == ["ok", "fail"]


def test_the_store_is_named_where_a_coordinator_of_this_state_folder_has_it(tmp_path: Path) -> None:
    at = tmp_path / "coordinator/phalanx.db"
    assert str(at) in lines_of(tmp_path)["store"][0].text


def test_a_dead_cluster_is_a_failure_with_a_fix(tmp_path: Path) -> None:
    text = '{"address": "http://127.0.0.1:9", "link": "127.0.0.1:8", "token_file": "x", "pid": 4000000}'
    (tmp_path / "endpoint.json").write_text(text)
    os.chmod(tmp_path / "endpoint.json", 0o600)  # noqa: PTH101
    found = lines_of(tmp_path)
    assert (states(found, "cluster"), "phalanx up" in found["cluster"][0].fix) == (["fail"], True)


def test_a_check_that_hangs_or_fails_is_a_line_of_its_own() -> None:
    may_end = threading.Event()

    def hangs() -> list[DoctorLine]:
        may_end.wait(20.0)
        return []

    def fails() -> list[DoctorLine]:
        raise Unavailable("it is away", hint="wait")

    found = run_checks([("a", hangs), ("b", fails), ("c", lambda: [ok("c", "well")])], within_s=0.2)
    may_end.set()
    assert [(line.check, line.state) for line in found] == [("a", "fail"), ("b", "fail"), ("c", "ok")]
    assert "0.2 s" in found[0].text
