"""What a task leaves where its keeper will look next: it delays nobody, and nothing is disabled by it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.runner.keeper_node import Node, tell


def _link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("plant", [os.mkfifo, _link, Path.touch])
def test_what_lies_where_a_log_will_be_is_replaced(tmp_path: Path, plant: Callable[[Path], None], held: bool):
    async def story(node: Node) -> None:
        plant(node.out("j/0/2"))
        plant(node.err("j/0/2"))
        node.sh("j/0/2", "echo mine", held=held)
        if held:
            await node.ready("j/0/2")
            plant(node.out("j/0/2"))
            node.processes.go("j/0/2")
        assert (await node.ended("j/0/2")).code == 0
        assert node.out("j/0/2").read_text() == "mine\n"
        assert not node.out("j/0/2").is_symlink()
        assert not (tmp_path / "elsewhere").exists()

    tell(tmp_path, story)


def test_a_folder_where_a_log_will_be_is_a_refusal(tmp_path: Path):
    async def story(node: Node) -> None:
        node.out("j/0/2").mkdir()
        node.sh("j/0/2", "echo mine")
        assert (await node.refused("j/0/2")).code == "no_log"

    tell(tmp_path, story)
