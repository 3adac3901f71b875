"""A program in real terminals of several sizes, by tmux: keys for it, and what it shows, against screens in files."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path

from tests.support.waiting import wait_until

Size = tuple[int, int]
SHOWN_S = 30.0  # on a busy machine a program takes long to start
SETTLED_S = 2.5  # after which a screen that is written down anew shows everything, reasons of jobs among it
MASKS = (
    (r"\b\d\d:\d\d:\d\d\b", "HH:MM:SS"),
    (r"\b(?:\d+m ?)?\d[\d.]*s\b *", "TIME "),
    (r"\bn\d(: 0 of 2 GPUs free)", r"nN\1"),  # either node may be named
    (r"[ \t]+$", ""),
)


class Terminals:
    """One program in a terminal of each size."""

    def __init__(self, socket: Path, sizes: Sequence[Size]) -> None:
        self._socket = socket
        self.sizes = sizes

    def tmux(self, *arguments: object) -> str:
        line = ["tmux", "-u", "-S", str(self._socket), "-f", os.devnull, *map(str, arguments)]
        sizes = ("COLUMNS", "LINES")  # of the terminal in which the tests run, if there is one
        environment = {name: text for name, text in os.environ.items() if name not in sizes}
        environment["LC_ALL"] = "C.UTF-8"
        return subprocess.run(line, check=True, capture_output=True, text=True, env=environment).stdout

    def screen(self, size: Size) -> str:
        """What is shown, with words for what differs between one run and the next."""
        text = self.tmux("capture-pane", "-p", "-t", _name(size)).rstrip() + "\n"
        for pattern, word in MASKS:
            text = re.sub(pattern, word, text, flags=re.MULTILINE)
        return text

    def press(self, *keys: str, only: Size | None = None) -> None:
        for size in [only] if only else self.sizes:
            self.tmux("send-keys", "-t", _name(size), *keys)

    def expect(self, folder: Path, name: str, sizes: Sequence[Size], *, rewrite: bool = False) -> None:
        """Wait until terminals of these sizes show what the file of this screen and size holds."""
        for size in sizes:
            file = folder / f"{name}-{_name(size)}.txt"
            if rewrite:
                file.write_text(self._settled(size))
            wanted, shown = file.read_text(), ""
            try:
                wait_until(lambda: self.screen(size) == wanted or None, SHOWN_S)  # noqa: B023 - called at once
            except TimeoutError:
                shown = self.screen(size)
            difference = "\n".join(
                unified_diff(wanted.splitlines(), shown.splitlines(), "in the file", "shown")
            )
            assert not shown or shown == wanted, f"{file.name}: rewrite it with --rewrite?\n{difference}"

    def _settled(self, size: Size) -> str:
        shown, since = self.screen(size), time.monotonic()
        while time.monotonic() - since < SETTLED_S:
            if (now := self.screen(size)) != shown:
                shown, since = now, time.monotonic()
        return shown


def _name(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


@contextmanager
def terminals(folder: Path, sizes: Sequence[Size], words: Sequence[object]) -> Iterator[Terminals]:
    """The program, once in a terminal of each size; all are ended at the end."""
    opened = Terminals(folder / "tmux", sizes)
    for size in sizes:
        opened.tmux("new-session", "-d", "-s", _name(size), "-x", size[0], "-y", size[1], *words)
    try:
        yield opened
    finally:
        opened.tmux("kill-server")
