"""Building the dashboard where Node or its libraries cannot be had, and what tests say where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from phalanx.dashboard import STATIC
from tests.support import browser
from tests.tidy.source import ROOT

NOWHERE = "http://127.0.0.1:9"
BUILT_FROM = ("scripts", "requirements-ui.lock", "docs/reference/openapi.json", "ui")
NODE = ROOT / "build/node"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the dashboard is built from, and nothing that was fetched for it."""
    for name in BUILT_FROM:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("node_modules", "dist"))
        else:
            shutil.copy(source, target)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def build(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """scripts/ui without PyPI, npm and what was fetched from them before."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "npm_"))}
    environment = kept | {
        "PIP_INDEX_URL": NOWHERE, "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull,
        "UV_INDEX_URL": NOWHERE, "UV_DEFAULT_INDEX": NOWHERE, "UV_NO_CACHE": "1", "UV_HTTP_RETRIES": "0",
        "UV_NO_CONFIG": "1",
        "npm_config_registry": NOWHERE, "npm_config_cache": str(checkout / "cache"),
        "npm_config_fetch_retry_mintimeout": "10", "npm_config_fetch_retry_maxtimeout": "20",
    }  # fmt: skip
    return subprocess.run(
        ["bash", "scripts/ui", *words],
        cwd=checkout, env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "missing", ["Node could not be installed from PyPI", "libraries could not be installed from npm"]
)
def test_without_node_or_npm_an_installation_goes_on_and_says_what_is_missing(checkout: Path, missing: str):
    if "npm" in missing:
        if not (NODE / ".lock").is_file():
            pytest.skip("Node from PyPI is not there: make ui")
        (checkout / "build").mkdir()
        (checkout / "build/node").symlink_to(NODE)
    tried = build(checkout, "--if-possible")
    assert tried.returncode == 0, tried.stderr
    assert f"The dashboard is not built: {'its ' if 'npm' in missing else ''}{missing}" in tried.stderr
    assert "make ui" in tried.stderr
    assert not (checkout / "src/phalanx/dashboard/static").exists()
    assert build(checkout).returncode == 1


def test_nothing_is_done_where_nothing_has_changed(checkout: Path):
    if not (STATIC / ".built").is_file():
        pytest.skip("the dashboard is not built: make ui")
    built = checkout / "src/phalanx/dashboard/static"
    shutil.copytree(STATIC, built)
    assert (build(checkout).returncode, build(checkout).stderr) == (0, "")
    (checkout / "ui/src/main.ts").write_text("changed")
    assert build(checkout).returncode == 1


def test_in_ci_a_browser_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(browser, "chromium", lambda: None)
    monkeypatch.delenv("CI", raising=False)
    assert "Chromium is missing" in browser.why_not()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(RuntimeError, match="Chromium is missing"):
        browser.why_not()
