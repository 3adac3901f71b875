"""Simulated hardware: what the text means, and what is refused with which message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.resources import Device, NumaNode
from phalanx.runner.pretend import parse_pretend

GIB = 1 << 30


def test_a_whole_server():
    capacity = parse_pretend(
        "gpus=8,type=h100,memory=80GiB,numa=2,cpus=64,ram=512GiB,labels=zone=a;rack=r1", "n1", cpus=[0, 1]
    )
    assert (capacity.cores, capacity.memory_bytes) == (64, 512 * GIB)
    assert capacity.numa == (NumaNode(0, 32, (0,)), NumaNode(1, 32, (1,)))
    assert capacity.devices[3] == Device(3, "h100", 80 * GIB, 0, "GPU-pretend-n1-3")
    assert [device.numa for device in capacity.devices] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert capacity.labels == {"zone": "a", "rack": "r1"}


def test_what_is_not_said_is_the_machines_own():
    capacity = parse_pretend("gpus=1", "n1", cpus=[4, 5, 6])
    assert capacity.cores == 3
    assert capacity.memory_bytes > GIB // 4
    assert capacity.numa == ()
    assert capacity.devices == (Device(0, "gpu", 80 * GIB, None, "GPU-pretend-n1-0"),)


def test_uneven_shares_favour_the_first():
    capacity = parse_pretend("gpus=5,numa=3,cpus=8", "n", cpus=range(4))
    assert [node.cores for node in capacity.numa] == [3, 3, 2]
    assert [node.cpus for node in capacity.numa] == [(0, 1), (2,), (3,)]
    assert [device.numa for device in capacity.devices] == [0, 0, 1, 1, 2]


def test_more_numa_nodes_than_cpus_take_turns():
    nodes = parse_pretend("numa=4,cpus=8", "n", cpus=[0, 1]).numa
    assert [node.cpus for node in nodes] == [(0,), (1,), (0,), (1,)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu=8", "unknown key 'gpu' (value '8'); did you mean 'gpus'?"),
        ("colour=red", "unknown key 'colour' (value 'red'); the keys are gpus, type"),
        ("gpus=8,,cpus=2", "'' is not key=value"),
        ("gpus", "'gpus' is not key=value"),
        ("gpus=x", "gpus='x' is invalid: expected a whole number from 0 to 1024"),
        ("gpus=-1", "gpus='-1' is invalid"),
        ("gpus=99999999999999999999", "a whole number from 0 to 1024"),
        ("gpus=٣", "a whole number"),
        ("gpus=1,gpus=2", "gpus='2' is invalid: expected each key once"),
        ("cpus=0", "cpus='0' is invalid: expected a whole number from 1"),
        ("numa=3,cpus=2", "numa='3' is invalid: expected at most one NUMA node for each of the 2 cores"),
        ("ram=lots", "ram='lots' is invalid: expected a size from 1 MiB to 1 PiB, such as 80GiB"),
        ("ram=1", "ram='1' is invalid: expected a size"),
        ("gpus=1,memory=2EiB", "memory='2EiB' is invalid"),
        ("memory=80GiB", "memory='80GiB' is invalid: expected gpus= of at least 1"),
        ("gpus=1,type=H 100", "type='H 100' is invalid: expected a name"),
        ("labels=zone", "label 'zone' is invalid: expected name=value"),
        ("labels=zone=a;zone=b", "label 'zone=b' is one too many: each label once"),
        ("labels=zone=\x1b[31m", "label 'zone=\\x1b[31m' is invalid"),
        ("gpus=1" + "," * 5000, "at most 4096 characters"),
    ],
)
def test_a_mistake_names_the_key_the_value_and_what_is_right(text: str, words: str):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 (the words are checked below)
        parse_pretend(text, "n1", cpus=[0, 1])
    assert words in str(refusal.value)


@given(
    st.text(max_size=80)
    | st.from_regex(r"(gpus|cpus|numa|ram|labels|type)=[0-9a-zA-Z=;]{0,12}", fullmatch=True)
)
def test_any_text_is_understood_or_refused(text: str):
    try:
        capacity = parse_pretend(text, "n1", cpus=[0, 1])
    except ValueError:
        return
    assert capacity.cores == sum(node.cores for node in capacity.numa) or not capacity.numa
    assert all(node.cpus for node in capacity.numa)
