"""The dashboard's server side with real processes: logins, standbys that pass requests on, failover, terminals."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.api.schema.session_frames import FrameKind
from tests.support.browser_connection import Browser
from tests.support.certificate_authority import Authority
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

TWO = ("a", "b")
NODES = {"n1": "cpus=4,ram=8GiB,gpus=2,type=h100,memory=80GiB"}
SETTINGS: dict[str, object] = {"coordinator.lease_s": 2.0}


def a_page(cluster: RealCluster, name: str, user: str = "") -> Browser:
    """A page at a coordinator that is logged in with a fresh ticket: the admin's, or a user's."""
    with ExitStack() as opened:
        client = cluster.client
        if user:
            token = client.create_token(TokenRequest(name=user, role="user")).token
            client = opened.enter_context(phalanx.Client(cluster.address(cluster.leader()), token=token))
        ticket = client.dashboard([cluster.address(each) for each in TWO]).url.partition("#ticket=")[2]
    page = Browser(cluster.address(name))
    assert page.log_in(ticket).status == 201
    return page


def a_running_job(cluster: RealCluster) -> str:
    id = cluster.client.submit(command=["/bin/sleep", "300"], gpus=1).task_ids[0]
    cluster.wait_task(id, "Running")
    return id


@pytest.mark.timeout(120)
def test_a_page_goes_on_at_the_next_coordinator_when_its_own_is_killed(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODES, coordinators=TWO, settings=SETTINGS, lost_after_s=20.0) as cluster:
        leader, (other,) = cluster.leader(), cluster.standbys()
        page = a_page(cluster, leader)
        id = a_running_job(cluster)
        shown = page.ask("GET", "/v1/pages/map").json()
        assert shown["nodes"][0]["held"] == [1, 0]
        assert shown["holders"][0]["id"] == id

        cluster.kill(leader)
        wait_until(lambda: cluster.status_of(other, "/leaderz") == 200, 30.0, f"{other} leads")
        there = Browser(cluster.address(other))
        assert page.next_ticket and there.log_in(page.next_ticket).status == 201
        change = there.first_change(after=shown["revision"])
        assert change["revision"] > shown["revision"]
        assert there.ask("POST", f"/v1/jobs/{id}/cancel").status == 200
        assert Browser(cluster.address(other)).log_in(page.next_ticket).json()["reason"] == "TicketRefused"
        there.cookie = page.cookie.replace(str(page.at.port), str(there.at.port))
        assert there.ask("GET", "/v1/cluster").json()["reason"] == "LoginEnded"


@pytest.mark.timeout(120)
def test_a_standby_passes_on_what_a_page_asks(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODES, coordinators=TWO, settings=SETTINGS, lost_after_s=20.0) as cluster:
        (standby,) = cluster.standbys()
        page = a_page(cluster, standby)
        assert page.ask("GET", "/v1/cluster").json()["coordinator"]["role"] == "Active"
        before = page.ask("GET", "/v1/pages/overview").json()["revision"]
        made = page.ask("POST", "/v1/jobs", {"command": ["/bin/sh", "-c", "echo out; sleep 300"]})
        assert made.status == 202, made.body
        id = made.json()["task_ids"][0]
        cluster.wait_task(id, "Running")
        wait_until(lambda: b"out" in page.ask("GET", f"/v1/tasks/{id}/logs").body, 10.0, "its log is read")
        assert page.first_change(after=before)["rows"]
        assert page.ask("POST", f"/v1/jobs/{id}/cancel", headers={"phalanx-csrf": ""}).status == 403
        session = page.ask("POST", f"/v1/tasks/{id}/exec", {"command": ["echo", "hello"]}).json()
        frames = page.terminal(session["session"], session["ticket"]).frames()
        assert (FrameKind.STDOUT, b"hello\n") in frames
        assert page.ask("DELETE", "/v1/logins/current").status == 200
        assert page.ask("GET", "/v1/cluster").status == 401


@pytest.mark.timeout(120)
def test_a_standby_has_places_left_for_others(tmp_path: Path) -> None:
    """Whatever strangers begin to send, and whatever one user waits for there."""
    with a_real_cluster(tmp_path, NODES, coordinators=TWO, settings=SETTINGS, lost_after_s=20.0) as cluster:
        (standby,) = cluster.standbys()
        at = urlsplit(cluster.address(standby)).netloc
        id = a_running_job(cluster)
        greedy = a_page(cluster, standby, "greedy")
        with ExitStack() as opened:

            def send(text: str) -> None:
                connection = socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])))
                opened.callback(connection.close)
                connection.sendall(text.replace("\n", "\r\n").encode())

            for _ in range(300):
                send(f"POST /v1/logins HTTP/1.1\nhost: {at}\ncontent-length: 100\n\n{{")
            other = a_page(cluster, standby, "other")
            for _ in range(256):
                send(
                    f"GET /v1/jobs/{id}/wait?timeout_s=60 HTTP/1.1\nhost: {at}\ncookie: {greedy.cookie}\n"
                    "sec-fetch-site: same-origin\n\n"
                )
            wait_until(lambda: greedy.ask("GET", "/v1/cluster").status == 429, 20.0, "its share is used")
            assert other.ask("GET", "/v1/pages/overview").status == 200
            assert other.ask("POST", "/v1/jobs", {"command": ["true"]}).status == 202


@pytest.mark.timeout(120)
def test_what_waits_for_a_frozen_leader_ends_when_another_leads(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODES, coordinators=TWO, settings=SETTINGS, lost_after_s=20.0) as cluster:
        leader, (standby,) = cluster.leader(), cluster.standbys()
        page = a_page(cluster, standby)
        revision = page.ask("GET", "/v1/pages/overview").json()["revision"]
        os.kill(cluster.processes[leader].pid, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(3) as threads:
                read = threads.submit(page.ask, "GET", "/v1/pages/overview")
                change = threads.submit(page.ask, "POST", "/v1/jobs", {"command": ["true"]})
                stream = threads.submit(page.ask, "GET", f"/v1/pages/changes?after={revision}")
                assert read.result(30.0).status == 200, "answered by who leads now"
                refused = change.result(30.0)
                assert (refused.status, refused.json()["reason"]) == (503, "LeaderAway")
                assert stream.result(30.0).status in (200, 503), "cut, so that the page asks again"
        finally:
            os.kill(cluster.processes[leader].pid, signal.SIGCONT)


@pytest.mark.timeout(120)
def test_a_page_has_a_terminal_in_a_task(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, NODES, coordinators=("a",)) as cluster:
        ticket = cluster.client.dashboard().url.partition("#ticket=")[2]
        page = Browser(cluster.address("a"))
        page.log_in(ticket)
        id = a_running_job(cluster)
        asked = page.ask("POST", f"/v1/tasks/{id}/exec", {"command": ["cat"], "stdin": True}).json()
        terminal = page.terminal(asked["session"], asked["ticket"])
        terminal.send(FrameKind.STDIN, b"abc")
        terminal.send(FrameKind.STDIN_END)
        frames = terminal.frames()
        assert frames[0][0] is FrameKind.STARTED
        assert b"".join(content for kind, content in frames if kind is FrameKind.STDOUT) == b"abc"
        assert json.loads(frames[-1][1])["code"] == 0

        again = page.terminal(asked["session"], asked["ticket"]).frames()
        assert json.loads(again[-1][1])["reason"] == "TicketRefused"
        asked = page.ask("POST", f"/v1/tasks/{id}/exec", {"command": ["true"]}).json()
        for origin in ("", "http://evil.example", "http://127.0.0.1:1"):
            assert page.terminal(asked["session"], asked["ticket"], origin).status == 403
        assert page.terminal(asked["session"], "wrong").frames()[-1][0] is FrameKind.ERROR


@pytest.mark.timeout(120)
def test_a_standby_vouches_for_a_user_of_its_proxy(tmp_path: Path) -> None:
    settings = SETTINGS | {
        "coordinator.trusted_proxy": ["127.0.0.1"],
        "coordinator.trusted_proxy_roles": ["user:ada=operator"],
    }
    with a_real_cluster(tmp_path, {}, coordinators=TWO, settings=settings) as cluster:
        (standby,) = cluster.standbys()
        page = Browser(cluster.address(standby))
        assert page.ask("POST", "/v1/logins", {}).json()["reason"] == "TicketNeeded"
        forged = {"phalanx-voucher": "ada:admin:9999999999:c2lnbmVk"}
        assert page.ask("POST", "/v1/logins", {}, forged).json()["reason"] == "TicketNeeded"
        named = {"x-forwarded-user": "ada"}
        opened = page.ask("POST", "/v1/logins", {}, named)
        assert (opened.status, opened.json()["role"]) == (201, "operator"), opened.body
        page.cookie = opened.headers["set-cookie"].partition(";")[0]
        assert page.ask("GET", "/v1/cluster", headers=named).status == 200
        assert page.ask("GET", "/v1/cluster", headers={"x-forwarded-user": "bob"}).status == 403


class TlsPair(RealCluster):
    """Two coordinators with certificates of the cluster's own authority."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "ca")
        files = authority.coordinator("c", "127.0.0.1")
        self.tls = ssl.create_default_context(cafile=files.ca_file)
        settings = SETTINGS | {
            "coordinator.tls_ca_file": str(files.ca_file),
            "coordinator.tls_cert_file": str(files.cert_file),
            "coordinator.tls_key_file": str(files.key_file),
        }
        super().__init__(folder, coordinators=TWO, settings=settings)
        self.client.close()
        self.client = phalanx.Client(
            [self.address(name) for name in TWO], self.user_token, tls_files=authority.alone
        )

    def address(self, name: str) -> str:
        return f"https://127.0.0.1:{self.ports[name][0]}"

    def status_of(self, name: str, path: str) -> int:
        page = Browser(self.address(name), self.tls)
        try:
            return page.ask("GET", path, headers={"authorization": f"Bearer {self.user_token}"}).status
        except OSError:
            return 0


@pytest.mark.timeout(120)
def test_over_tls_the_cookie_is_secure_and_the_leader_has_to_prove_itself(tmp_path: Path) -> None:
    cluster = TlsPair(tmp_path)
    try:
        cluster.start({})
        (standby,) = cluster.standbys()
        page = Browser(cluster.address(standby), cluster.tls)
        opened = page.log_in(cluster.client.dashboard().url.partition("#ticket=")[2])
        assert opened.status == 201, opened.body
        words = opened.headers["set-cookie"].split("; ")
        assert words[0].startswith(f"__Host-phalanx_login_{page.at.port}=")
        assert "Secure" in words
        assert page.ask("GET", "/v1/cluster").json()["coordinator"]["role"] == "Active"
        assert page.ask("POST", "/v1/jobs", {"command": ["true"]}).status == 202
    finally:
        cluster.stop()
