"""Which devices a type of device names: FlowMesh's parts of names, and patterns."""

from __future__ import annotations

import pytest

from phalanx.core.model.device_types import containing, fits
from phalanx.core.model.resources import Device, device_kind

NAMES = {
    "a6000": "NVIDIA RTX A6000",
    "4090": "NVIDIA GeForce RTX 4090",
    "3090": "NVIDIA GeForce RTX 3090",
    "l40s": "NVIDIA L40S",
    "a10g": "NVIDIA A10G",
    "a100": "NVIDIA A100-SXM4-40GB",
    "a100 80": "NVIDIA A100 80GB PCIe",
    "mi300x": "AMD Instinct MI300X",
}


def named(name: str) -> Device:
    return Device(0, device_kind(name), 0, name=name)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("A6000", "a6000"),
        ("RTX", "a6000 4090 3090"),
        ("4090", "4090"),
        ("RTX 3090", "3090"),
        ("rtx-3090", "3090"),
        ("L40", "l40s"),
        ("A10", "a10g a100 a100_80"),
        ("a100-sxm4", "a100"),
        ("80GB", "a100_80"),
        ("MI300X", "mi300x"),
        ("nvidia", "a6000 4090 3090 l40s a10g a100 a100_80"),
        ("NVIDIA A100-SXM4-80GB", ""),
        ("H100", ""),
    ],
)
def test_a_type_of_flowmesh_is_any_part_of_the_name_in_any_case(asked: str, found: str):
    pattern = containing(asked)
    expected = {each.replace("_", " ") for each in found.split()}
    assert {key for key, name in NAMES.items() if fits(pattern, named(name))} == expected
    assert expected >= {key for key, name in NAMES.items() if asked.lower() in name.lower()}


@pytest.mark.parametrize(
    ("asked", "kind", "is_fit"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100", True),  # what makers add to the name is not in the kind
        ("NVIDIA GeForce RTX 4090", "rtx-4090", True),
        ("A6000", "rtx-a6000", True),
        ("80GB", "a100", False),
        ("nvidia", "a100", False),
        ("A100", "h100", False),
    ],
)
def test_a_device_of_which_only_the_kind_is_known_is_compared_by_it(asked: str, kind: str, is_fit: bool):
    assert fits(containing(asked), Device(0, kind)) == is_fit


@pytest.mark.parametrize(
    ("pattern", "is_fit"),
    [
        ("*", True),
        ("rtx*", True),  # of the kind
        ("nvidia*4090", True),  # of the name
        ("*geforce*rtx*", True),
        ("*rtx*geforce*", False),
        ("geforce*", False),
        ("rtx*090*090", False),
        ("RTX 4090*", True),
        ("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a", False),
    ],
)
def test_a_pattern_is_compared_with_the_kind_and_with_the_name(pattern: str, is_fit: bool):
    assert fits(pattern, named("NVIDIA GeForce RTX 4090")) == is_fit


def test_a_type_without_a_letter_or_a_digit_names_nothing():
    assert containing(" -/") == ""
