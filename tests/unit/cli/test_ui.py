"""`phalanx ui` and `phalanx login`: an address that works once, and never in the arguments of a program."""

from __future__ import annotations

import stat
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from phalanx.api.schema.logins import LoginRecord
from phalanx.client.logins import DashboardAddress
from tests.support.fake_client import Cli, FakeClient

URL = "http://127.0.0.1:7433/ui/#ticket=phx_ui_secret"
RECORD = LoginRecord(
    id="3b03e5da89561dd2",
    name="ada",
    role="user",
    token="f" * 16,
    valid=True,
    created_at=1.0,
    used_at=1.0,
    expires_at=4e9,
)


class Opened:
    """Stands for a browser."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def open(self, page: str) -> bool:
        self.pages.append(page)
        return True


@pytest.fixture
def cluster(cluster: FakeClient, monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    def dashboard(addresses: Any) -> DashboardAddress:
        cluster.asked.append(("dashboard", tuple(addresses)))
        return DashboardAddress("http://127.0.0.1:7433/ui/", URL, 60.0)

    monkeypatch.setattr(cluster, "dashboard", dashboard, raising=False)
    monkeypatch.setattr(cluster, "logins", lambda: [RECORD], raising=False)
    monkeypatch.setattr(cluster, "end_login", lambda id: RECORD, raising=False)
    return cluster


@pytest.fixture
def reach(away: Path) -> list[str]:
    """The flags that name a coordinator and a token."""
    file = away / "token"
    file.write_text("phx_of_ada\n")
    file.chmod(0o600)
    return ["--address", "http://127.0.0.1:7433,http://127.0.0.1:7533", "--token-file", str(file)]


def test_the_address_is_in_a_file_that_only_its_user_can_read(
    cli: Cli, cluster: FakeClient, reach: list[str], away: Path, monkeypatch: pytest.MonkeyPatch
):
    browser = Opened()
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    said = cli(*reach, "--state", str(away / "state"), "ui")
    assert (said.code, said.out) == (0, "")
    assert "phx_ui_secret" not in said.err + "".join(browser.pages)
    page = away / "state" / "open-dashboard.html"
    assert browser.pages == [page.as_uri()]
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert f'content="0;url={URL}"' in page.read_text()
    assert cluster.asked == [("dashboard", ("http://127.0.0.1:7433", "http://127.0.0.1:7533"))]


def test_where_no_browser_is_the_address_is_printed(
    cli: Cli, cluster: FakeClient, reach: list[str], monkeypatch: pytest.MonkeyPatch
):
    def none() -> None:
        raise webbrowser.Error

    monkeypatch.setattr(webbrowser, "get", none)
    said = cli(*reach, "ui")
    assert said.out == f"{URL}\n"
    assert "60 s" in said.err
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("w3m"))  # it runs no scripts
    assert cli(*reach, "ui").out == f"{URL}\n"


def test_no_browser_is_opened_if_none_is_wanted(
    cli: Cli, cluster: FakeClient, reach: list[str], monkeypatch: pytest.MonkeyPatch
):
    browser = Opened()
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    assert cli(*reach, "ui", "--no-browser").out == f"{URL}\n"
    assert cli(*reach, "ui", "-o", "name").out == f"{URL}\n"
    assert browser.pages == []


def test_an_address_of_grpc_has_no_page(cli: Cli, cluster: FakeClient, reach: list[str]):
    said = cli("--address", "grpc://127.0.0.1:7435", *reach[2:], "ui")
    assert said.code == 2
    assert "gRPC" in said.err


def test_browsers_are_listed_and_logged_out(cli: Cli, cluster: FakeClient):
    shown = cli("login", "list").out
    assert RECORD.id in shown and "ada" in shown and "valid" in shown
    assert "logged out" in cli("login", "end", RECORD.id).out
