"""Lines of job scripts by which other schedulers read options: they are comments here, and that is said with what our
options would be (`script_options.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from phalanx.cli.output import note
from phalanx.cli.script_options import translated

READ_BYTES = 64 * 1024
WORDS_LOOKED_AT = 8  # of a command: `bash -e ./script.sh`
_LINE = re.compile(r"#(SBATCH|PBS|HQ|BSUB|\$)[ \t]+(-.*)")


def tell_directives(words: Sequence[str]) -> None:
    """Name the script of a command that has such lines, and what they would be here. Nothing is refused."""
    for word in words[:WORDS_LOOKED_AT]:
        found = list(_directives(word))
        if found:
            [(system, count)] = Counter(each for each, _ in found).most_common(1)
            lines = "line, which is" if count == 1 else "lines, which are"
            ours, others = translated(system, [line for each, line in found if each == system])
            meant = f": {' '.join(ours)}" if ours else ""
            left = f"; not translated: {', '.join(others)}" if others else ""
            note(f"warning: {word} has {count} #{system} {lines} not read{meant}{left}")
            return


def _directives(word: str) -> Iterator[tuple[str, str]]:
    """The lines of a script, as (SBATCH, options); none of what is no small text."""
    try:
        path = Path(word)
        if not path.is_file():
            return
        with path.open("rb") as file:
            text = file.read(READ_BYTES)
    except (OSError, ValueError):
        return
    if b"\0" not in text:
        for line in text.decode(errors="replace").splitlines():
            if match := _LINE.fullmatch(line.rstrip()):
                yield match[1], match[2]
