"""Which commands are one Python process."""

from __future__ import annotations

import pytest

from phalanx.runner.plain_command import is_plain_python


@pytest.mark.parametrize(
    "command",
    [
        "python ddp.py", "python3 ddp.py --nproc 4", "/venv/bin/python3.11 -u ddp.py", "python -m mine.train -m torch",
        "python -W ignore ddp.py", "python -X dev -c pass", "python -mmine.train",
    ],
)  # fmt: skip
def test_python_with_a_script_a_text_or_a_module(command: str) -> None:
    assert is_plain_python(command.split())


@pytest.mark.parametrize(
    "command",
    [
        "torchrun ddp.py", "python -m torch.distributed.run ddp.py", "python -u -m accelerate.commands.launch ddp.py",
        "python -mtorch.distributed.launch ddp.py", "python /venv/bin/torchrun ddp.py", "sh -c 'python ddp.py'",
        "pythonista ddp.py", "python", "python -i",
    ],
)  # fmt: skip
def test_launchers_shells_and_what_nobody_can_know(command: str) -> None:
    assert not is_plain_python(command.split())
    assert not is_plain_python([])
