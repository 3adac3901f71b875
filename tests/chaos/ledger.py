"""The ledger: what the tasks recorded about themselves, read back as lives. It is independent of Phalanx."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

COLUMNS = 9


@dataclass
class Life:
    """One attempt that ran. `ended_at` is None if it was killed before it could record its end."""

    key: str  # job/position/attempt
    node: str
    devices: tuple[int, ...]
    cores: int
    formation: str  # of a gang, its job and number
    epoch: int
    started_at: float
    starts: int = 1
    ended_at: float | None = None
    code: int | None = None  # None while it lives, and if it was stopped
    clashes: list[str] = field(default_factory=list)
    born_at: float = 0.0  # when its process was made; it writes a moment later
    seen_at: float = 0.0  # when it last wrote that it lives
    twins: list[str] = field(default_factory=list)  # other attempts of its task that lived when it began

    @property
    def job(self) -> str:
        return self.key.split("/")[0]

    @property
    def position(self) -> int:
        return int(self.key.split("/")[1])

    @property
    def attempt(self) -> int:
        return int(self.key.split("/")[2])


def read_lives(path: Path) -> dict[str, Life]:
    """Every attempt that ever ran, by its key. A line that is not whole is an error: appends are atomic."""
    lives: dict[str, Life] = {}
    if not path.exists():
        return lives
    for line in path.read_text().splitlines():
        words = line.split("\t")
        if len(words) != COLUMNS:
            raise ValueError(f"{path}: a line of {len(words)} columns: {line[:200]!r}")
        _note(lives, words)
    return lives


def _note(lives: dict[str, Life], words: list[str]) -> None:
    what, at, key, node, devices, cores, formation, epoch, detail = words
    if what == "start":
        if key in lives:
            lives[key].starts += 1
            return
        held = tuple(int(each) for each in devices.split(",") if each)
        life = lives[key] = Life(key, node, held, int(cores), formation, int(epoch), float(at))
        life.born_at = float(detail.split()[1])
        return
    life = lives[key]
    match what:
        case "twin":
            life.twins.append(detail)
        case "clash":
            life.clashes.append(detail)
        case "alive":
            life.seen_at = float(at)
        case "stopped":
            life.ended_at = float(at)
        case "end":
            life.ended_at, life.code = float(at), int(detail)
