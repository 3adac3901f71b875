"""The mailbox of a term: what is to be decided, in two lanes with limits. No I/O and no waiting.

What runners say and what ends work (cancel, drain) goes first; submits go second, and only so many of them enter one
turn. So a flood of submits makes submits wait, and then be refused, while everything else is served as before.
"""

from __future__ import annotations

from collections import deque

from phalanx.coordinator.link import Envelope
from phalanx.core.cluster.inputs import Disconnect, Heartbeat, Hello, Input, Submit, Tell

RUNNERS_MAX = 200_000  # envelopes; a connection that comes on top is closed, and tells again
WISHES_MAX = 5_000
SUBMITS_MAX = 2_000
FIRST_PER_TURN = 20_000  # inputs
SUBMITS_PER_TURN = 100

_OF_RUNNERS = (Heartbeat, Tell, Hello, Disconnect)


class Mailbox:
    """Letters that wait for a turn, oldest first in each lane."""

    def __init__(self) -> None:
        self._first: deque[Envelope] = deque()
        self._second: deque[Envelope] = deque()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def post(self, envelope: Envelope) -> bool:
        """Put an envelope in; False if there is no room for its kind, or none for anybody any more."""
        inputs = envelope[0]
        lane = self._second if any(type(each) is Submit for each in inputs) else self._first
        if self.is_closed or len(lane) >= _limit(inputs, lane is self._second):
            return False
        lane.append(envelope)
        return True

    def take(self) -> list[Envelope]:
        """The envelopes of the next turn. None is divided, so one large one may exceed the limit alone."""
        return [*_take(self._first, FIRST_PER_TURN), *_take(self._second, SUBMITS_PER_TURN)]

    def close(self) -> None:
        """Take nothing in any more; what is in may still be taken out."""
        self.is_closed = True


def _limit(inputs: list[Input], is_second: bool) -> int:
    if is_second:
        return SUBMITS_MAX
    return RUNNERS_MAX if inputs and isinstance(inputs[0], _OF_RUNNERS) else WISHES_MAX


def _take(lane: deque[Envelope], most: int) -> list[Envelope]:
    taken: list[Envelope] = []
    count = 0
    while lane and (not taken or count + len(lane[0][0]) <= most):
        taken.append(lane.popleft())
        count += len(taken[-1][0])
    return taken
