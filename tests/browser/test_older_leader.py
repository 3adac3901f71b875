"""A page of this version at a standby, behind a leader of the version before: what that does not say is made up for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from phalanx.api.schema.cluster import TokenRequest
from tests.support.browser import Dashboard, why_not
from tests.support.real_cluster import TWO_NODES, RealCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")

# The leader answers as before `may` of a job, which it leaves out, and before `waiting` of `why`, the newest lines of a
# story and the plan of a job, which it refuses.
OLDER = """
import msgspec, phalanx.api.schema.queries as queries
queries.WhyQuery = msgspec.defstruct(
    "WhyQuery", [], frozen=True, forbid_unknown_fields=True, namespace={"waiting": False})
queries.NEWEST = object()
import phalanx.api.server.routes.apply as apply
apply.ROUTES = tuple(route for route in apply.ROUTES if route.path != "/v1/jobs/{id}/plan")
import phalanx.api.server.routes.jobs as jobs
reply = jobs.json_reply
def without_may(value, status=200):
    told = msgspec.to_builtins(value)
    told.pop("may", None)
    return reply(told, status)
jobs.json_reply = without_may
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """An array of which two tasks run and one waits."""
    cluster = RealCluster(tmp_path_factory.mktemp("older"), coordinators=("older", "newer"))
    try:
        cluster.prelude = OLDER
        cluster.start_coordinator("older")
        cluster.wait_ready("older")
        cluster.prelude = ""
        cluster.start_coordinator("newer")
        cluster.wait_ready("newer")
        assert cluster.leader() == "older"
        cluster.start_runner("n1", TWO_NODES["n1"])
        cluster.wait_online("n1")
        cluster.client.submit(name="part", command=["sleep", "600"], array="1-3", gpus=1)
        cluster.wait_task("1.2", "Running")
        yield cluster
    finally:
        cluster.stop()


def at_the_standby(browser: Browser, cluster: RealCluster, token: str = "") -> Dashboard:
    """The page of a job at the newer coordinator, with a ticket of the leader."""
    opened = Dashboard(browser, cluster, token, at="newer")
    ticket = Dashboard(browser, cluster, token, at="older").ticket()
    opened.page.goto(f"{opened.address}/ui/jobs/part#ticket={ticket}")
    opened.page.get_by_role("heading", level=1).filter(has_text="part").wait_for()
    return opened


def buttons(page: Page) -> list[str]:
    return [each.strip() for each in page.locator(".actions").get_by_role("button").all_inner_texts()]


def test_a_job_has_the_buttons_of_what_its_user_may_do(browser: Browser, cluster: RealCluster) -> None:
    guest = cluster.client.create_token(TokenRequest(name="guest", role="viewer")).token
    for token, wanted in ((guest, list[str]()), ("", ["Hold", "Resubmit …", "Cancel"])):
        opened = at_the_standby(browser, cluster, token)
        page = opened.page
        assert "may" not in page.evaluate("fetch('/v1/jobs/1').then((reply) => reply.json())")
        assert buttons(page) == wanted
        if wanted:
            page.get_by_role("button", name="Hold").click()
            page.get_by_label("Reason").fill("for a moment")
            page.get_by_role("dialog").get_by_role("button", name="Hold").click()
            page.get_by_role("button", name="Release", exact=True).wait_for()
            assert cluster.client.job("part").held == "for a moment (by admin)"
            cluster.client.release("part")
        opened.check_clean()
        opened.close()


def test_a_story_is_told_and_what_there_is_not_is_said(browser: Browser, cluster: RealCluster) -> None:
    opened = at_the_standby(browser, cluster)
    page = opened.page
    page.get_by_role("tab", name="Story").click()
    page.get_by_text("submitted: sleep 600").wait_for()
    page.get_by_role("tab", name="Plan").click()
    page.get_by_role("alert").filter(has_text="The leader is of an older version").wait_for()
    opened.check_clean()
    opened.close()


def test_the_rest_of_an_array_is_explained_by_its_first_task_that_waits(
    browser: Browser, cluster: RealCluster
) -> None:
    opened = at_the_standby(browser, cluster)
    page = opened.page
    why = page.get_by_role("region", name="Why")
    why.get_by_text("1.3 waiting").wait_for()
    why.get_by_text("WaitingCapacity").wait_for()
    refused = page.evaluate("fetch('/v1/jobs/1/why?waiting=true').then((reply) => reply.status)")
    assert refused == 400
    opened.check_clean()
    opened.close()
