"""One browser for the tests of a file, and a page that is logged in for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Dashboard, a_browser
from tests.support.real_cluster import RealCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with a_browser() as browser:
        yield browser


@pytest.fixture
def dashboard(browser: Browser, cluster: RealCluster) -> Iterator[Dashboard]:
    opened = Dashboard(browser, cluster)
    opened.log_in()
    yield opened
    opened.close()
