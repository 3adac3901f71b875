"""The settings of elastic nodes: FlowMesh's names, their bounds, and the rules that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.config import load
from phalanx.coordinator.rules import rules_of
from phalanx.core.model.elastic import ElasticRules
from phalanx.errors import ConfigError
from phalanx.settings import Settings


def read(tmp_path: Path, text: str = "", **variables: str) -> Settings:
    folder = tmp_path / "etc"
    folder.mkdir(exist_ok=True)
    (folder / "phalanx.toml").write_text(text, encoding="utf-8")
    env = {"HOME": str(tmp_path)} | variables
    return load({}, environment=env, folder=tmp_path, system=folder)


def rules(tmp_path: Path, text: str = "", **variables: str) -> ElasticRules:
    return rules_of(read(tmp_path, text, **variables)).elastic


def test_without_settings_only_people_disable_nodes(tmp_path: Path):
    assert rules(tmp_path) == ElasticRules("manual", False, 60.0, 0, 0, 1, 30.0, 60.0)


def test_flowmeshs_names_are_read(tmp_path: Path):
    found = rules(
        tmp_path,
        ENABLE_ELASTIC_SCALING="true",
        ELASTIC_AUTO_DISABLE_IDLE_SEC="90",
        ELASTIC_AUTO_DISABLE_QUEUE_MAX="2",
        ELASTIC_AUTO_ENABLE_QUEUE_THRESHOLD="5",
        ELASTIC_AUTO_MIN_ACTIVE_WORKERS="3",
        ELASTIC_AUTO_POLL_INTERVAL_SEC="45",
    )
    assert found == ElasticRules("auto", False, 90.0, 2, 5, 3, 45.0, 90.0)  # a cooldown of two polls
    assert rules(tmp_path, ELASTIC_AUTO_TOGGLE_COOLDOWN_SEC="30").cooldown_s == 30.0


@pytest.mark.parametrize(
    ("word", "mode"),
    [("true", "auto"), ("True", "auto"), ("false", "off"), ("auto", "auto"), ("manual", "manual")],
)
def test_the_switch_may_be_written_as_flowmesh_does(tmp_path: Path, word: str, mode: str):
    assert rules(tmp_path, ENABLE_ELASTIC_SCALING=word).mode == mode


def test_the_switch_may_be_a_boolean_of_toml(tmp_path: Path):
    assert rules(tmp_path, "[elastic]\nmode = true").mode == "auto"
    assert rules(tmp_path, "[elastic]\nmode = false").mode == "off"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ENABLE_ELASTIC_SCALING", "perhaps"),
        ("ELASTIC_AUTO_POLL_INTERVAL_SEC", "4"),
        ("ELASTIC_AUTO_TOGGLE_COOLDOWN_SEC", "29"),
        ("ELASTIC_AUTO_DISABLE_IDLE_SEC", "-1"),
        ("ELASTIC_AUTO_DISABLE_QUEUE_MAX", "-1"),
        ("ELASTIC_AUTO_ENABLE_QUEUE_THRESHOLD", "x"),
        ("PHALANX_ELASTIC_WEBHOOK", "ftp://host/x"),
        ("PHALANX_ELASTIC_WEBHOOK", "http://user:pw@host/x"),
        ("PHALANX_ELASTIC_COMMAND", 'wake "unclosed'),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(tmp_path: Path, variable: str, value: str):
    with pytest.raises(ConfigError, match=r"elastic\.\w+ = .*expected") as refused:
        read(tmp_path, **{variable: value})
    assert variable in str(refused.value)


def test_a_program_is_a_list_or_quoted_words(tmp_path: Path):
    section = read(tmp_path, '[elastic]\ncommand = ["/bin/wake", "a b"]').elastic
    assert section.command == ("/bin/wake", "a b")
    found = read(tmp_path, PHALANX_ELASTIC_COMMAND="/bin/wake 'a b' $HOME")
    assert found.elastic.command == ("/bin/wake", "a b", "$HOME")
    assert rules_of(found).elastic.notifies


def test_a_token_is_not_sent_in_the_clear(tmp_path: Path):
    token = {"PHALANX_ELASTIC_WEBHOOK_TOKEN_FILE": "token"}
    with pytest.raises(ConfigError, match="expected https"):
        read(tmp_path, PHALANX_ELASTIC_WEBHOOK="http://host:8000/x", **token)
    with pytest.raises(ConfigError, match=r"elastic\.webhook is not"):
        read(tmp_path, **token)
    assert read(tmp_path, PHALANX_ELASTIC_WEBHOOK="https://host/x", **token).elastic.webhook_token_file
    assert read(tmp_path, PHALANX_ELASTIC_WEBHOOK="http://127.0.0.1:8000/x", **token).elastic.webhook


def test_a_project_file_that_is_not_trusted_names_no_program(tmp_path: Path):
    (tmp_path / "phalanx.toml").write_text('[elastic]\ncommand = ["/bin/evil"]', encoding="utf-8")
    found = read(tmp_path)
    assert found.elastic.command == ()
    assert found.untrusted is not None
