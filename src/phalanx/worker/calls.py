"""What a worker has in hand: calls that its process was given, results on their way, and how many more to ask for.

No I/O and no clock. Short calls are asked for in advance, so many that they last a moment; a call that takes long is
alone, so that others can run what waits behind it.
"""

from __future__ import annotations

from collections import OrderedDict

from phalanx.api.schema.calls import BATCH_BYTES, BATCH_CALLS_MAX, CallBatch, CallResult

AHEAD_S = 0.1  # for how long the calls in hand should last
STUCK_S = 1.0  # after which those behind a call are given back
SMOOTHING = 0.3  # the share of the newest measurement in the mean
FUNCTIONS_MAX = 64  # that the process keeps, the last ones


class CallsInHand:
    """The calls of one process, in the order in which it runs them."""

    def __init__(self) -> None:
        self.running: OrderedDict[int, None] = OrderedDict()  # the first one runs
        self.results: list[CallResult] = []
        self.returned: list[int] = []
        self.known: OrderedDict[str, None] = OrderedDict()  # functions of the process
        self._mean_s = STUCK_S  # of a call
        self._since = 0.0  # when the call that runs has begun, about
        self._is_asked_back = False

    @property
    def depth(self) -> int:
        """How many calls to have in hand."""
        return int(min(BATCH_CALLS_MAX, max(1.0, AHEAD_S / self._mean_s)))

    @property
    def want(self) -> int:
        """How many calls to ask for now; 0: none."""
        has_room = len(self.running) <= self.depth // 2 and not (self.depth == 1 and self.running)
        return self.depth - len(self.running) if has_room and not self._is_asked_back else 0

    def add(self, batch: CallBatch, now: float) -> None:
        """The process was given these calls."""
        if not self.running:
            self._since = now
        self.running.update((call.id, None) for call in batch.calls)
        if batch.function:
            self.known[batch.digest] = None
            if len(self.known) > FUNCTIONS_MAX:
                self.known.popitem(last=False)

    def ended(self, results: list[CallResult], now: float) -> None:
        """The process has run these."""
        for result in results:
            self.running.pop(result.id, None)
        self.results += results
        took_s = max(1e-6, (now - self._since) / max(1, len(results)))
        self._mean_s += SMOOTHING * (took_s - self._mean_s)
        self._mean_s = max(self._mean_s, took_s) if took_s > AHEAD_S else self._mean_s
        self._since = now

    def is_stuck(self, now: float) -> bool:
        """Whether calls wait behind one that takes long; they are to be asked back once."""
        if self._is_asked_back or len(self.running) < 2 or now - self._since < STUCK_S:
            return False
        self._is_asked_back = True
        self._mean_s = now - self._since
        return True

    def gave_back(self, ids: list[int]) -> None:
        """The process has not begun these, and will not."""
        self._is_asked_back = False
        for id in ids:
            if self.running.pop(id, 0) is None:
                self.returned.append(id)

    def died(self, text: str) -> None:
        """The process has ended: the call that ran is named, the others were not begun."""
        ids = list(self.running)
        self.running.clear()
        self.known.clear()
        self._is_asked_back = False
        if ids:
            self.results.append(CallResult(ids[0], "died", text=text))
            self.returned += ids[1:]

    def next_message(self) -> tuple[list[CallResult], list[int]]:
        """Results and returned calls for one message; they stay in hand until `sent`."""
        results: list[CallResult] = []
        size = 0
        for result in self.results[:BATCH_CALLS_MAX]:
            size += len(result.value) + len(result.text)
            if results and size > BATCH_BYTES:
                break
            results.append(result)
        return results, self.returned[:BATCH_CALLS_MAX]

    def sent(self, results: int, returned: int) -> None:
        """So many of them have arrived."""
        del self.results[:results]
        del self.returned[:returned]
