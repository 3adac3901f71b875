"""`phalanx config`: every value has its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import json

from tests.support.fake_client import Cli


def test_explain_names_the_source_and_what_it_beats(cli: Cli, away: Path, monkeypatch: pytest.MonkeyPatch):
    (away / "phalanx.toml").write_text("[coordinator]\nport = 7500\n")
    assert cli("config", "trust").code == 0
    monkeypatch.setenv("PHALANX_COORDINATOR_PORT", "7600")
    lines = cli("config", "explain", "coordinator.port").out.splitlines()
    assert lines[:3] == [
        "coordinator.port = 7600",
        "  from PHALANX_COORDINATOR_PORT",
        f"  {away}/phalanx.toml sets 7500 (overridden)",
    ]


def test_explain_lists_aliases(cli: Cli):
    out = cli("config", "explain", "coordinator.lost_after_s").out
    assert "PHALANX_COORDINATOR_LOST_AFTER_S or KRISHIV_HEARTBEAT_TIMEOUT_SECS" in out


def test_explain_everything(cli: Cli):
    assert cli("config", "explain").out.count("  from default\n") > 15


def test_a_misspelt_key_gets_a_suggestion(cli: Cli):
    said = cli("config", "explain", "coordinator.prot")
    assert said.code == 5
    assert "did you mean coordinator.port?" in said.err


def test_a_token_is_never_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PHALANX_TOKEN", "phx_secret")
    for words in (["show"], ["show", "-o", "json"], ["explain"], ["explain", "client.token", "-o", "yaml"]):
        said = cli("config", *words)
        assert said.code == 0
        assert "PHALANX_TOKEN" in said.out
        assert "phx_secret" not in said.out + said.err


def test_show_in_json(cli: Cli):
    shown = json.decode(cli("config", "show", "-o", "json").out)
    assert shown["coordinator.port"] == {"value": 7433, "source": "default"}


def test_path_lists_the_files_that_are_read(cli: Cli, away: Path, monkeypatch: pytest.MonkeyPatch):
    (away / "phalanx.toml").write_text("output = 'table'\n")
    assert cli("config", "path").out.splitlines() == [
        f"{away}/phalanx.toml",
        f"state folder: {away.parent}/home/.local/state/phalanx",
    ]


def test_a_wrong_setting_is_told_by_every_command(cli: Cli, away: Path):
    (away / "phalanx.toml").write_text("[runner]\nnmae = 'x'\n")
    said = cli("config", "show")
    assert said.code == 2
    assert said.err == (
        f"error: unknown key 'runner.nmae' in {away}/phalanx.toml\nhint: did you mean runner.name?\n"
    )
