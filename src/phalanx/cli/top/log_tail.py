"""The tail of a log: bytes to whole lines that a terminal shows and does not obey. Long lines are cut."""

from __future__ import annotations

from phalanx.cli.output import clean

LINE_MAX = 2000
PENDING_MAX = 1 << 16  # bytes of a line without an end that are held


class LogTail:
    """Cuts pieces into lines. A carriage return begins a line again, as a progress bar means it."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[str]:
        """The lines that a piece completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > PENDING_MAX:
            whole.append(self._rest)
            self._rest = b""
        return [readable(line) for line in whole]

    def end(self) -> list[str]:
        """The last line, if it has no end."""
        rest, self._rest = self._rest, b""
        return [readable(rest)] if rest else []


def readable(line: bytes) -> str:
    """One line of text: escapes, control characters and marks of direction are removed, invalid UTF-8 is shown as �."""
    text = line.rstrip(b"\r").rpartition(b"\r")[2][: 4 * LINE_MAX].decode(errors="replace")
    shown = clean(text.replace("\t", "    "))
    return shown if len(shown) <= LINE_MAX else f"{shown[:LINE_MAX]}… (cut)"
