"""`phalanx ca`: what it writes, what it prints, and what it refuses."""

from __future__ import annotations

from pathlib import Path

from msgspec import json

from tests.support.fake_client import Cli


def test_an_authority_issues_to_a_node(cli: Cli, away: Path):
    assert cli("ca", "init", "ca", "--name", "lab").code == 0
    said = cli("ca", "issue", "ca", "--node", "n1")
    assert said.out == "ca/nodes/n1\n"
    assert sorted(path.name for path in (away / "ca/nodes/n1").iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    assert "phalanx runner --tls /etc/phalanx/tls --name n1" in said.err


def test_show_tells_whom_it_is_for(cli: Cli):
    cli("ca", "init", "ca")
    cli("ca", "issue", "ca", "--coordinator", "c1", "--host", "c1.lab", "--host", "10.0.0.1", "--days", "7")
    text = cli("ca", "show", "ca/coordinators/c1/tls.crt").out
    assert "Kind:     coordinator" in text
    assert "c1.lab, 10.0.0.1" in text
    shown = json.decode(cli("ca", "show", "ca/coordinators/c1/tls.crt", "-o", "json").out)
    assert (shown["name"], shown["days_left"]) == ("c1", 6)


def test_nothing_is_overwritten(cli: Cli):
    cli("ca", "init", "ca")
    cli("ca", "issue", "ca", "--node", "n1")
    said = cli("ca", "issue", "ca", "--node", "n1")
    assert said.code == 6
    assert "--renew" in said.err
    assert cli("ca", "issue", "ca", "--node", "n1", "--renew").code == 0
    assert cli("ca", "init", "ca").code == 6


def test_it_is_for_one_of_them(cli: Cli):
    cli("ca", "init", "ca")
    assert cli("ca", "issue", "ca").code == 2
    assert "give one of" in cli("ca", "issue", "ca", "--node", "n1", "--client", "ada").err


def test_a_coordinator_needs_a_host(cli: Cli):
    cli("ca", "init", "ca")
    assert "--host" in cli("ca", "issue", "ca", "--coordinator", "c1").err
