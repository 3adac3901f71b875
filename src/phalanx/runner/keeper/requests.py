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
        self._roster = roster
        self._deadlines = deadlines
        self._journal = journal
        self._spawner = spawner
        self._trimmer = trimmer
        self._voice = voice
        self._lanes = Lanes()

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
        if lane is None or not self._lanes.is_taken(lane):
            self._spawn(key, brief_id, options)
        elif key not in self._lanes.waiting:
            self._lanes.wait(lane, (key, brief_id, options))

    def _spawn(self, key: str, brief_id: str, options: Options) -> bool:
        """Start it now; False if that was refused."""
        try:
            self._check_may_start(key)
            attempt = self._spawner.start(key, brief_id, options)
        except Refused as refusal:
            self._refuse(key, refusal.code, refusal.message)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self._refuse(key, "spawn_failed", f"the start cannot be read: {error!r}")
        else:
            self._lanes.take(attempt.lane, key)
            self._roster.add(attempt)
            self._voice.tell(attempt.started_line(), urgent=False)
            self._journal.try_flush()  # at once: a keeper killed later in this turn still knows of it
            return True
        return False

    def ended(self, attempt: Attempt) -> None:
        """Nothing of an attempt is left: tell it, and start whoever waited for its lane."""
        self._voice.tell(attempt.ended_line(), urgent=not self._lanes.goes_on(attempt.lane))
        request = self._lanes.leave(attempt.lane, attempt.key)
        while request is not None and not self._spawn(*request):
            request = self._lanes.next(request[2]["lane"])

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
            raise Refused("fenced", "the runner's lease has run out")

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
            if self._lanes.withdraw(key):
                self._refuse(key, "stopped", "it was stopped before it could start")
            self._roster.never_start(key)
            self._journal.note(json.dumps(["stopped", key]))

    def retract(self, key: str) -> None:
        """Take back what still waits for its lane; what has started goes on."""
        if self._lanes.withdraw(key):
            self._refuse(key, "retracted", "it was taken back before it could start")

    def lease(self, seconds_left: float) -> None:
        self._deadlines.renew_lease(float(seconds_left))

    def listing(self) -> None:
        facts = {"version": VERSION, "log_cap": self._trimmer.supported, "briefs": [*self._spawner.briefs]}
        rows = [attempt.row() for attempt in self._roster.attempts.values()]
        rows += [f'[{json.dumps(key)},"waiting",0,0.0,null]' for key in self._lanes.waiting]
        self._voice.say(f'["listing",[{",".join(rows)}],{json.dumps(facts)}]')

    def forget(self, keys: list[str]) -> None:
        ended = self._roster.forget(keys)
        if ended:
            self._journal.note(json.dumps(["forget", ended]))

    def shutdown(self, grace_s: float = FENCE_GRACE_S) -> None:
        """Stop everything; the loop ends when nothing is left."""
        self.closing = True
        for key in [*self._lanes.waiting]:
            self.stop(key, 0.0)
        for attempt in [*self._roster.leaders.values()]:
            if attempt.kill_at is None:  # one that was being stopped anyway ends for that reason
                attempt.reason = attempt.reason or "shutdown"
            self._deadlines.stop(attempt, float(grace_s))


_VERBS: dict[str, Callable[..., None]] = {
    "brief": Requests.brief,
    "forget_brief": Requests.forget_brief,
    "start": Requests.start,
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
