"""A page whose coordinator dies opens itself at the next one, still logged in, at the place where it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import RealCluster

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")


def test_a_page_moves_to_the_next_coordinator(browser: Browser, tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path, lost_after_s=4.0, coordinators=("a", "b"))
    try:
        cluster.start({"n1": "cpus=2,ram=1GiB"})
        job = cluster.client.submit(name="stays", command=["sleep", "600"])
        leader = cluster.leader()
        (other,) = cluster.standbys()
        opened = Dashboard(browser, cluster, at=leader)
        page = opened.log_in("/jobs/stays?tab=story", cluster.address(leader), cluster.address(other))
        page.get_by_text("submitted:").wait_for()
        cluster.wait_task(job.task_ids[0], "Running")
        cluster.kill(leader)
        page.wait_for_url(re.compile(re.escape(cluster.address(other))), timeout=30_000)
        page.get_by_text("submitted:").wait_for(timeout=30_000)
        assert page.url == f"{cluster.address(other)}/ui/jobs/stays?tab=story"
        page.get_by_text("live", exact=True).wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Cancel the job").click()
        page.locator(".page-head .status").filter(has_text="Cancelled").wait_for(timeout=30_000)
        opened.close()
    finally:
        cluster.stop()
