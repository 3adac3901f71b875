"""The lifecycles as drawings and tables, made from `core/explain/transitions.py` and the moves of tasks in
`core/cluster/jobs.py`.

A drawing numbers its moves and the table under it says what each number means. Where a state stands on the grid, and
which arrows bend, is said here; which states and moves there are is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import atan2, cos, hypot, sin

from phalanx.core.cluster.jobs import MOVES
from phalanx.core.explain.transitions import GANG_MOVES, NODE_MOVES, NONE, PROMISE_MOVES
from phalanx.core.model.orders import Status

Moves = Mapping[tuple[str, str], str]
Point = tuple[float, float]

WIDTH, HEIGHT, BOX_W, BOX_H, MARGIN = 215, 118, 118, 38, 70

TASKS: Moves = {
    (NONE, Status.PENDING.word): "accepted and durable",
    **{(before.word, after.word): why for (before, after), why in MOVES.items()},
}
LIVES: dict[str, Moves] = {
    "task": TASKS,
    "gang": GANG_MOVES,
    "node": NODE_MOVES,
    "promise": PROMISE_MOVES,
}
# Column and row of each state.
GRID: dict[str, dict[str, Point]] = {
    "task": {
        "Pending": (0, 1),
        "Assigned": (1, 1),
        "Running": (2, 1),
        "Completed": (2, 0),
        "Failed": (2, 2),
        "Cancelled": (1, 2.2),
    },
    "gang": {"Draft": (0, 0), "Waiting": (0, 1.2), "Forming": (1, 1.2), "Started": (2, 1.2), "Ended": (2, 0)},
    "node": {
        "Unhealthy": (1, 0),
        "Stopping": (1, 1),
        "Online": (0, 1.6),
        "Unreachable": (2, 1.6),
        "Quarantined": (0, 2.8),
        "Offline": (2, 2.8),
    },
    "promise": {"Leaving": (0, 0), "Free": (1.2, 0)},
}
# How far an arrow's middle is moved to its left, in pixels, where the straight line would hit something.
BENDS: dict[str, dict[tuple[str, str], float]] = {
    "task": {("Running", "Pending"): -74, ("Running", "Cancelled"): -34},
    "gang": {("Started", "Waiting"): 62, ("Waiting", "Ended"): -6},
    "node": {},
    "promise": {},
}


def drawing(name: str) -> str:
    """One lifecycle as an SVG picture."""
    moves, grid = LIVES[name], GRID[name]
    centres = {state: (MARGIN + 59 + x * WIDTH, MARGIN + y * HEIGHT) for state, (x, y) in grid.items()}
    parts = [_arrow(name, number, move, centres) for number, move in enumerate(moves, start=1)]
    parts += [_box(state, *centres[state]) for state in centres]
    width = max(x for x, _ in centres.values()) + 59 + MARGIN
    height = max(y for _, y in centres.values()) + 19 + MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="sans-serif" font-size="14" role="img">\n'
        f"<title>The lifecycle of a {name}</title>\n"
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L10 5L0 10z" fill="#555"/></marker></defs>\n'
        '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def table(name: str) -> str:
    """The moves of one lifecycle with their numbers, as a Markdown table."""
    lines = ["| | from | to | when |", "|---|---|---|---|"]
    for number, ((before, after), why) in enumerate(LIVES[name].items(), start=1):
        lines.append(f"| {number} | {before or '—'} | {after or '—'} | {why} |")
    return "\n".join(lines) + "\n"


def _box(state: str, x: float, y: float) -> str:
    left, top = x - BOX_W / 2, y - BOX_H / 2
    return (
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{BOX_W}" height="{BOX_H}" rx="6" fill="#eef3fb" '
        f'stroke="#33557f" stroke-width="1.5"/><text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" '
        f'fill="#111">{escape(state)}</text>'
    )


def _arrow(name: str, number: int, move: tuple[str, str], centres: dict[str, Point]) -> str:
    before, after = move
    if NONE in move:
        return _outside(number, move, centres)
    start, end = centres[before], centres[after]
    bend = BENDS[name].get(move, 15.0 if (after, before) in LIVES[name] else 0.0)
    angle = atan2(end[1] - start[1], end[0] - start[0])
    middle = (start[0] + end[0]) / 2 + sin(angle) * bend, (start[1] + end[1]) / 2 - cos(angle) * bend
    # A quadratic curve passes its middle when its control point lies twice as far out.
    control = middle[0] * 2 - (start[0] + end[0]) / 2, middle[1] * 2 - (start[1] + end[1]) / 2
    tail, tip = _border(start, control), _border(end, control)
    line = f"M{tail[0]:.0f} {tail[1]:.0f}Q{control[0]:.0f} {control[1]:.0f} {tip[0]:.0f} {tip[1]:.0f}"
    return f'<path d="{line}" fill="none" stroke="#555" marker-end="url(#tip)"/>' + _number(
        number,
        (tail[0] + 2 * control[0] + tip[0]) / 4,
        (tail[1] + 2 * control[1] + tip[1]) / 4,
    )


def _outside(number: int, move: tuple[str, str], centres: dict[str, Point]) -> str:
    """Where something begins, from a dot; and where it is gone, to a ring."""
    before, after = move
    x, y = centres[before or after]
    if before:
        side = -1 if before == "Online" else 1  # to its right all places are taken
        spot = (x + side * (BOX_W / 2 + 42), y - side * 34)
        tail, tip = _border((x, y), spot), (spot[0] - side * 6, spot[1] + side * 5)
        mark = f'<circle cx="{spot[0]:.0f}" cy="{spot[1]:.0f}" r="6" fill="#fff" stroke="#555" stroke-width="3"/>'
    else:
        spot = (x - BOX_W / 2 - 38, y - 34)
        tail, tip = spot, _border((x, y), spot)
        mark = f'<circle cx="{spot[0]:.0f}" cy="{spot[1]:.0f}" r="6" fill="#555"/>'
    line = f"M{tail[0]:.0f} {tail[1]:.0f}L{tip[0]:.0f} {tip[1]:.0f}"
    return f'<path d="{line}" stroke="#555" marker-end="url(#tip)"/>{mark}' + _number(
        number, (tail[0] + tip[0]) / 2, (tail[1] + tip[1]) / 2
    )


def _border(centre: Point, towards: Point) -> Point:
    """Where the line from a box's centre leaves the box."""
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    length = hypot(dx, dy)
    share = min((BOX_W / 2 + 2) / abs(dx) if dx else length, (BOX_H / 2 + 2) / abs(dy) if dy else length, 1.0)
    return centre[0] + dx * share, centre[1] + dy * share


def _number(number: int, x: float, y: float) -> str:
    return (
        f'<circle cx="{x:.0f}" cy="{y:.0f}" r="10" fill="#fff" stroke="#999"/><text x="{x:.0f}" '
        f'y="{y + 4:.0f}" text-anchor="middle" font-size="11" fill="#111">{number}</text>'
    )
