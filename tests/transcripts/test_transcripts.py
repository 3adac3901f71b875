"""Stories in text files: what one does to a cluster, and what it answers.

Each block of a `*.txt` file is one or more commands, a line `----`, and the answer. Lines that begin with `#`
are for the reader. When behaviour changes, `pytest tests/transcripts --rewrite` writes the answers anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcripts.script import Script

FOLDER = Path(__file__).parent
RULE = "----"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest):
    written = path.read_text(encoding="utf-8")
    played = play(written)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(played, encoding="utf-8")
    else:
        assert written.splitlines() == played.splitlines(), "read the difference, then --rewrite"


def test_a_transcript_that_tells_something_else_is_seen():
    told = "add-node n1 cores=2\n----\nn1 joined with 3 cores, 16 GiB\n"
    assert play(told) == "add-node n1 cores=2\n----\nn1 joined with 2 cores, 16 GiB\n"


def test_what_is_for_the_reader_stays_as_it_is():
    text = "# A title.\n\n# More.\nadd-node n1\nnodes\n----\n"
    assert play(text).startswith("# A title.\n\n# More.\nadd-node n1\nnodes\n----\nn1 joined")


def test_a_command_nobody_knows_is_an_error():
    with pytest.raises(ValueError, match="no command 'dance'"):
        play("dance\n----\n")


def play(text: str) -> str:
    """The transcript with the answers that a fresh cluster gives now."""
    script = Script()
    return "\n".join(line for block in blocks(text) for line in answered(script, block)) + "\n"


def answered(script: Script, block: list[str]) -> list[str]:
    if RULE not in block:
        return block
    asked = block[: block.index(RULE)]
    said = [line for command in asked if not command.startswith("#") for line in script.obey(command)]
    return [*asked, RULE, *(said or ["nothing happens"])]


def blocks(text: str) -> Iterator[list[str]]:
    """Paragraphs, and the empty lines between them."""
    block: list[str] = []
    for line in text.splitlines():
        if line.strip():
            block.append(line.rstrip())
        else:
            if block:
                yield block
            yield [""]
            block = []
    if block:
        yield block
