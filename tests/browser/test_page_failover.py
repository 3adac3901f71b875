"""A page that is open while the coordinator that serves it is killed: two coordinators on etcd, a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import a_real_cluster
from tests.support.servers import shared_etcd

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

TWO = ("a", "b")
NODES = {"n1": "cpus=4,ram=8GiB,gpus=2,type=h100,memory=80GiB,labels=rack=r1"}
SETTINGS: dict[str, object] = {"coordinator.lease_s": 2.0}


@pytest.mark.timeout(120)
def test_open_pages_say_what_happened_and_go_on_at_the_next_coordinator(
    browser: Browser, tmp_path: Path
) -> None:
    with a_real_cluster(
        tmp_path, NODES, coordinators=TWO, store=shared_etcd().url, settings=SETTINGS, lost_after_s=20.0
    ) as cluster:
        leader, (other,) = cluster.leader(), cluster.standbys()
        addresses = [cluster.address(name) for name in TWO]
        cluster.client.submit(name="runs", command=["sleep", "600"], gpus=1)
        cluster.wait_task("1", "Running")
        first = Dashboard(browser, cluster, at=leader)
        page = first.log_in("/map?by=queue", *addresses)
        page.get_by_text("1 of 2 GPUs free").wait_for()
        terminal = Dashboard(browser, cluster, at=leader)
        terminal.log_in("/terminal/1", *addresses)
        terminal.page.locator(".xterm-helper-textarea:focus").wait_for()

        cluster.kill(leader)
        page.wait_for_url(re.compile(re.escape(cluster.address(other))), timeout=60_000)
        page.get_by_text(re.compile("The coordinator at .* went away: the page goes on here")).wait_for(
            timeout=60_000
        )
        page.get_by_text("live", exact=True).wait_for(timeout=30_000)
        assert re.search(r"/ui/map\?by=queue$", page.url)
        page.get_by_text("1 of 2 GPUs free").wait_for()
        cluster.client.submit(name="later", command=["sleep", "600"], gpus=1)
        page.get_by_text("0 of 2 GPUs free").wait_for()
        page.goto(f"{cluster.address(other)}/ui/nodes/n1")
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("after the failover")
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        page.get_by_text("Drained: after the failover", exact=True).wait_for()
        shown = terminal.page
        shown.wait_for_url(re.compile(re.escape(cluster.address(other))), timeout=60_000)
        shown.locator(".xterm-helper-textarea:focus").wait_for()
        assert first.errors == []
        first.close()
        terminal.close()
