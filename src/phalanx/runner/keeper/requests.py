"""What the runner may ask of the keeper, one method for each verb (see the package's docstring)."""

from __future__ import annotations

import json
import signal

from . import VERSION
from .deadlines import FENCE_GRACE_S
from .lanes import Lanes
from .spawn import Brief, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .attempt import Attempt, Options
    from .deadlines import Deadlines
    from .journal import Journal
    from .roster import Roster
    from .spawn import Spawner
    from .trim import Trimmer
    from .voice import Voice


_FENCED = "the runner's lease has run out"
_BAD_REQUEST = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)


class Requests:
    """Serves requests in the order they came. Nothing that is asked can end the keeper but a shutdown."""

    def __init__(
        self,
        roster: Roster,
        deadlines: Deadlines,
        journal: Journal,
        spawner: Spawner,
        trimmer: Trimmer,
        voice: Voice,
    ) -> None:
        self.closing = False
        self.lanes = Lanes()
        self._roster = roster
        self._deadlines = deadlines
        self._journal = journal
        self._spawner = spawner
        self._trimmer = trimmer
        self._voice = voice

    def serve(self, requests: list[Any]) -> None:
        for request in requests:
            try:
                _VERBS[request[0]](self, *request[1:])
            except _BAD_REQUEST as error:  # it must not take every attempt of the node along
                self._voice.say(json.dumps(["misunderstood", f"{str(request)[:200]}: {error!r}"]))

    def start(self, key: str, brief_id: str, options: Options) -> None:
        attempt = self._roster.attempts.get(key)
        if attempt is not None:
            self._voice.say(attempt.started_line())
            if attempt.exit is not None:
                self._voice.say(attempt.ended_line())
            return
        lane = options.get("lane")
        if key in self.lanes.ready:
            self._say_ready(key) if options.get("held") else self.go(key)
        elif lane is None or not self.lanes.is_taken(lane):
            self._begin(key, brief_id, options)
        elif key not in self.lanes.waiting:
            self.lanes.wait(lane, (key, brief_id, options))

    def go(self, key: str) -> None:
        """Start one that is ready. Should it be refused even now, its lane goes on without it."""
        request = self.lanes.ready.pop(key, None)
        if request is not None and not self._begin(key, request[1], {**request[2], "held": False}):
            self._go_on(request[2].get("lane"), key)

    def _begin(self, key: str, brief_id: str, options: Options) -> bool:
        """Its lane is free: start it, or get it ready if it is held; False if that was refused."""
        attempt: Attempt | None = None
        try:
            self._check_may_start(key)
            if options.get("held"):
                self._spawner.check(key, brief_id, options)
            else:
                attempt = self._spawner.start(key, brief_id, options)
        except Refused as refusal:
            self._refuse(key, refusal.code, refusal.message)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self._refuse(key, "spawn_failed", f"the start cannot be read: {error!r}")
        else:
            if attempt is None:
                self.lanes.make_ready((key, brief_id, options))
                self._say_ready(key)
            else:
                self._note_start(attempt)
            return True
        return False

    def _note_start(self, attempt: Attempt) -> None:
        self.lanes.take(attempt.lane, attempt.key)
        self._roster.add(attempt)
        self._voice.tell(attempt.started_line(), urgent=False)
        self._journal.try_flush()  # at once: a keeper killed later in this turn still knows of it

    def ended(self, attempt: Attempt) -> None:
        """Nothing of an attempt is left: tell it, and start whoever waited for its lane."""
        self._voice.tell(attempt.ended_line(), urgent=not self.lanes.goes_on(attempt.lane))
        self._go_on(attempt.lane, attempt.key)

    def _go_on(self, lane: int | None, key: str) -> None:
        """The holder of a lane is gone: the first of those behind it that is not refused comes next."""
        request = self.lanes.leave(lane, key)
        while request is not None and not self._begin(*request):
            request = self.lanes.next(request[2]["lane"])

    def _say_ready(self, key: str) -> None:
        self._voice.say(json.dumps(["ready", key]))

    def _refuse(self, key: str, code: str, message: str) -> None:
        self._voice.say(json.dumps(["refused", key, code, message]))

    def _check_may_start(self, key: str) -> None:
        if self._journal.trouble and not self._journal.try_flush():
            raise Refused("no_log", f"cannot write the keeper's journal: {self._journal.trouble}")
        if key in self._roster.stopped:
            raise Refused("stopped", "it was stopped before it could start")
        if self.closing:
            raise Refused("stopped", "the keeper is shutting down")
        if self._deadlines.lease_is_over():
            raise Refused("fenced", _FENCED)

    def brief(self, brief_id: str, content: dict[str, Any]) -> None:
        self._spawner.briefs[brief_id] = Brief(content)

    def forget_brief(self, brief_id: str) -> None:
        self._spawner.briefs.pop(brief_id, None)

    def signal(self, key: str, signum: int) -> None:
        attempt = self._roster.running(key)
        if attempt is not None:
            self._roster.signal(attempt, signal.Signals(signum))

    def pause(self, key: str) -> None:
        self._set_paused(key, True, signal.SIGSTOP)

    def resume(self, key: str) -> None:
        self._set_paused(key, False, signal.SIGCONT)

    def _set_paused(self, key: str, paused: bool, signum: int) -> None:
        attempt = self._roster.running(key)
        if attempt is not None and attempt.kill_at is None:  # one that is being stopped has to hear it
            attempt.paused = paused
            self._roster.signal(attempt, signum)

    def stop(self, key: str, grace_s: float) -> None:
        attempt = self._roster.running(key)
        if attempt is not None:
            self._deadlines.stop(attempt, float(grace_s))
        elif key not in self._roster.attempts:
            self._roster.never_start(key)
            self._journal.note(json.dumps(["stopped", key]))
            self._withdraw(key, "stopped", "it was stopped before it could start")

    def retract(self, key: str) -> None:
        """Take back what still waits for its lane; what has started or stands in a gang goes on."""
        if key in self.lanes.waiting and not self.lanes.waiting[key][2].get("held"):
            self._withdraw(key, "retracted", "it was taken back before it could start")

    def fence(self) -> None:
        """The lease is over: who is ready never starts. Who runs is stopped by `deadlines.py`."""
        for key in [*self.lanes.ready]:
            self._withdraw(key, "fenced", _FENCED)

    def _withdraw(self, key: str, code: str, message: str) -> None:
        """Refuse what has not started: it no longer waits for its lane, or leaves it to the next."""
        if self.lanes.withdraw(key):
            self._refuse(key, code, message)
        elif (request := self.lanes.ready.pop(key, None)) is not None:
            self._refuse(key, code, message)
            self._go_on(request[2].get("lane"), key)

    def lease(self, seconds_left: float, until: float | None = None) -> None:
        self._deadlines.renew_lease(float(seconds_left), None if until is None else float(until))

    def listing(self) -> None:
        facts = {"version": VERSION, "log_cap": self._trimmer.supported, "briefs": [*self._spawner.briefs]}
        rows = [attempt.row() for attempt in self._roster.attempts.values()]
        for state, keys in (("ready", self.lanes.ready), ("waiting", self.lanes.waiting)):
            rows += [f'[{json.dumps(key)},"{state}",0,0.0,null]' for key in keys]
        self._voice.say(f'["listing",[{",".join(rows)}],{json.dumps(facts)}]')

    def forget(self, keys: list[str]) -> None:
        ended = self._roster.forget(keys)
        if ended:
            self._journal.note(json.dumps(["forget", ended]))

    def shutdown(self, grace_s: float = FENCE_GRACE_S) -> None:
        """Stop everything; the loop ends when nothing is left."""
        self.closing = True
        for key in [*self.lanes.waiting, *self.lanes.ready]:
            self.stop(key, 0.0)
        for attempt in [*self._roster.leaders.values()]:
            if attempt.kill_at is None:  # one that was being stopped anyway ends for that reason
                attempt.reason = attempt.reason or "shutdown"
            self._deadlines.stop(attempt, float(grace_s))


_VERBS: dict[str, Callable[..., None]] = {
    "brief": Requests.brief,
    "forget_brief": Requests.forget_brief,
    "start": Requests.start,
    "go": Requests.go,
    "signal": Requests.signal,
    "pause": Requests.pause,
    "resume": Requests.resume,
    "stop": Requests.stop,
    "retract": Requests.retract,
    "lease": Requests.lease,
    "list": Requests.listing,
    "forget": Requests.forget,
    "shutdown": Requests.shutdown,
}
