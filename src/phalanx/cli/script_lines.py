"""Lines of job scripts by which other schedulers read options: they are comments here, and that is said with what our
options would be.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from phalanx.cli.output import note

READ_BYTES = 64 * 1024
WORDS_LOOKED_AT = 8  # of a command: `bash -e ./script.sh`
_LINE = re.compile(r"#(SBATCH|PBS|HQ|BSUB|\$)[ \t]+(-.*)")
_GRES = re.compile(r"gpu(?::(?P<type>[A-Za-z][\w-]*))?(?::(?P<number>[0-9]+))?")
_GPUS = re.compile(r"(?:(?P<type>[A-Za-z][\w-]*):)?(?P<number>[0-9]+)")
_SIZE = re.compile(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")
_SAME = {
    **dict.fromkeys(("-c", "--cpus-per-task", "--cpus"), "-c"),
    **dict.fromkeys(("-J", "--job-name", "--name"), "-n"),
    **dict.fromkeys(("-n", "--ntasks", "-N", "--nodes"), "--tasks"),
    **dict.fromkeys(("-a", "--array"), "--array"),
    **dict.fromkeys(("-p", "--partition", "-A", "--account", "--qos"), "-q"),
    **dict.fromkeys(("-D", "--chdir"), "--cwd"),
    **dict.fromkeys(("-w", "--nodelist"), "--nodes"),
    **dict.fromkeys(("-x", "--exclude"), "--exclude"),
}


def tell_directives(words: Sequence[str]) -> None:
    """Name the script of a command that has such lines, and what they would be here. Nothing is refused."""
    for word in words[:WORDS_LOOKED_AT]:
        found = list(_directives(word))
        if found:
            [(system, count)] = Counter(each for each, _ in found).most_common(1)
            lines = "line, which is" if count == 1 else "lines, which are"
            ours = " ".join(dict.fromkeys(_ours([line for each, line in found if each == system])))
            meant = f": {ours}" if ours else ""
            note(f"warning: {word} has {count} #{system} {lines} not read{meant}")
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


def _ours(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        while words:
            option, equals, value = words.pop(0).partition("=")
            if not equals and words and not words[0].startswith("-"):
                value = words.pop(0)
            if ours := _option(option, value):
                yield ours


def _option(option: str, value: str) -> str:
    """One option in our words; empty for one that we have not, or that cannot be read."""
    if option in {"--gres", "-G", "--gpus", "--gpus-per-node", "--gpus-per-task"}:
        return _gpus(value)
    if option in {"-t", "--time", "--time-limit"}:
        return _time_limit(value)
    if option == "--mem":
        return _memory(value)
    return f"{_SAME[option]} {shlex.quote(value)}" if option in _SAME and value else ""


def _gpus(value: str) -> str:
    found = _GRES.fullmatch(value) or _GPUS.fullmatch(value)
    if found is None:
        return ""
    kind = f" --gpu-type {found['type'].lower()}" if found["type"] else ""
    return f"--gpus {found['number'] or 1}{kind}"


def _memory(value: str) -> str:
    """Slurm counts in MiB where no unit is written, and in powers of 1024 everywhere."""
    found = _SIZE.fullmatch(value)
    return f"-m {found[1]}{(found[2] or 'M').upper()}iB" if found else ""


def _time_limit(value: str) -> str:
    """Slurm's minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    found = _CLOCK.fullmatch(value)
    if found is None or not value.strip("0:-"):
        return ""
    days, *rest = found.groups()
    numbers = [int(each) for each in rest if each is not None]
    if days is None and len(numbers) < 3:
        numbers = [0, *numbers]
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    parts = ((int(days or 0), "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "--time-limit " + "".join(f"{number}{unit}" for number, unit in parts if number)
