"""`phalanx topology`: the tree for people, the words of REST, and Koordinator's form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from phalanx.api.schema.apply import DomainView, LayerView, PlaceView, SeatView, TopologyView
from tests.support.fake_client import Cli, FakeClient

CLUSTER = """
topology: [{layer: spine, labels: [spine]}, {layer: rack, labels: [rack]}]
nodes:
  - {name: a1, cores: 8, gpus: 4, labels: {spine: s1, rack: r1}}
  - {name: a2, cores: 8, gpus: 4, labels: {spine: s1, rack: r1}, closed: no power}
  - {name: b1, cores: 8, labels: {spine: s1}}
running: [{name: train, gang: true, gpus: 2, cores: 1, places: {a1: 2}}]
"""


@pytest.fixture
def file(away: Path) -> str:
    (away / "cluster.yaml").write_text(CLUSTER)
    return "cluster.yaml"


def test_the_tree_shows_what_is_free_and_who_sits_where(cli: Cli, file: str):
    said = cli("topology", "--cluster", file)
    assert said.code == 0
    assert said.out.splitlines() == [
        "PLACE                       NODES  FREE/CORES  FREE/GPUS  JOBS",
        "cluster                     3      14/16       0/4",
        "└── spine s1                3      14/16       0/4",
        "    ├── rack b1 (no label)  1      8/8         -",
        "    │   └── b1                     8/8         -",
        "    └── rack r1             2      6/8         0/4",
        "        ├── a1                     6/8         0/4        train (2 tasks)",
        "        └── a2                     -/8         -/4        closed",
    ]
    assert said.err == "b1 has no label for rack\n"


def test_wide_names_every_task_and_its_devices(cli: Cli, file: str):
    assert "train.0[0,1] train.1[2,3]" in cli("topology", "--cluster", file, "-o", "wide").out


def test_yaml_is_koordinators_form(cli: Cli, file: str):
    said = cli("topology", "--cluster", file, "-o", "yaml")
    document = yaml.safe_load(said.out)
    assert (document["kind"], document["metadata"]) == ("ClusterNetworkTopology", {"name": "default"})
    assert [each["nodeNum"] for each in document["status"]["detailStatus"]] == [3, 3, 1, 2]
    assert 'topologyName: ""' in said.out  # as kubectl writes it


def test_json_is_the_words_of_rest(cli: Cli, file: str):
    found = json.loads(cli("topology", "--cluster", file, "-o", "json").out)
    assert [node["name"] for node in found["nodes"]] == ["b1", "a1", "a2"]
    assert found["nodes"][1]["seats"][0] == {
        "task": "train.0", "job": "train", "devices": [0, 1], "name": "train", "id": "00000000000000000000000001",
    }  # fmt: skip


def test_names_are_those_of_the_nodes(cli: Cli, file: str):
    assert cli("topology", "--cluster", file, "-o", "name").out.split() == ["b1", "a1", "a2"]


def test_a_running_cluster_is_asked(cli: Cli, cluster: FakeClient):
    cluster.answer = TopologyView(
        "cluster",
        [LayerView("rack", ["rack"])],
        "node",
        [DomainView("cluster", [], "node", [], 1, 8, 8, 1, 0)],
        [PlaceView("n1", [], True, 8, 8, 1, 0, [SeatView("01a", "01a", [0])])],
    )
    said = cli("topology")
    assert (said.code, cluster.asked) == (0, [("topology",)])
    assert said.out.splitlines()[-1].split() == ["└──", "n1", "8/8", "0/1", "01a"]


def test_a_file_that_cannot_be_read_is_an_error(cli: Cli, away: Path):
    assert cli("topology", "--cluster", "missing.yaml").code == 2
