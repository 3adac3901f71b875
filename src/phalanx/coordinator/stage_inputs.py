"""Values that stages wait for, fetched from the place for files and handed to the loop as inputs.

Each stage that waits has a task here until its values were given, or the term is over. A place that does not answer is
asked again; a file that is gone or was changed ends the stage, which the core decides. Nothing here is durable: whoever
takes over is asked for the same values by its own core.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial

from phalanx.coordinator.attempt_files import AttemptFiles
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.inputs import GiveInputs
from phalanx.core.cluster.stage_inputs import FetchInputs, NeededResult
from phalanx.errors import NotActive, NotFound, PhalanxError
from phalanx.logger import logger, told

log = logger("coordinator")
AT_ONCE = 8  # stages whose files are read at the same time
REMEMBERED_BYTES_MAX = 16 << 20  # of results that other stages may refer to as well
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0  # before the place for files is asked again
_FINAL = ("FileDamaged",)


class StageInputFetcher:
    """Fetches what turns ask for."""

    def __init__(self, files: AttemptFiles, requests: Requests, pause_s: float = PAUSE_S) -> None:
        self._files = files
        self._requests = requests
        self._pause_s = pause_s
        self._running: dict[str, asyncio.Task[None]] = {}  # by the job that the stage is to become
        self._again: dict[str, FetchInputs] = {}  # asked for once more while that was still running
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._remembered: OrderedDict[NeededResult, str] = OrderedDict()
        self._remembered_bytes = 0

    def note(self, turn: Turn) -> None:
        """A turn is durable: begin to fetch what it asks for. It never waits."""
        for effect in turn.effects:
            if type(effect) is FetchInputs and effect.job in self._running:
                self._again[effect.job] = effect  # the state was read anew: what is under way may be refused
            elif type(effect) is FetchInputs:
                self._start(effect)

    async def until_idle(self) -> None:
        """Wait until no stage waits for anything."""
        while self._running:
            await asyncio.wait(self._running.values())

    def stop(self) -> None:
        """The term is over, or has not begun."""
        self._again.clear()
        running, self._running = self._running, {}
        for task in running.values():
            task.cancel()

    def _start(self, asked: FetchInputs) -> None:
        task = asyncio.ensure_future(self._give(asked))
        self._running[asked.job] = task
        task.add_done_callback(partial(self._ended, asked.job))

    def _ended(self, job: str, task: asyncio.Task[None]) -> None:
        if self._running.get(job) is not task:
            return  # of a term that is over
        del self._running[job]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("fetching the values of a stage failed", job=job, exc_info=error)
        if (again := self._again.pop(job, None)) is not None:
            self._start(again)

    async def _give(self, asked: FetchInputs) -> None:
        """Fetch, and tell the core; again and again while the place does not answer."""
        pause_s = self._pause_s
        while True:
            try:
                given = await self._fetched(asked)
                [answer] = await self._requests.ask([given])
                if isinstance(answer, Refused) and answer.kind == "bad":  # the log cannot hold the values
                    await self._requests.ask([_trouble(asked, answer.reason.text, is_final=True)])
                if isinstance(answer, Refused) or given.is_final or not given.trouble:
                    return
            except NotActive:
                return  # the next coordinator asks for the same
            except PhalanxError as error:
                log.warning("the values of a stage could not be handed in", job=asked.job, **told(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _fetched(self, asked: FetchInputs) -> GiveInputs:
        """What was found, or what went wrong."""
        try:
            async with self._slots:
                results = {
                    (each.stage, each.position): await self._result(each) for each in asked.needs.results
                }
                for artifact in asked.needs.artifacts:
                    await self._files.require(artifact.task_id, artifact.path)
        except NotActive:
            raise
        except PhalanxError as error:
            is_final = isinstance(error, NotFound) or error.reason in _FINAL
            return _trouble(asked, error.detail, is_final=is_final)
        return GiveInputs(asked.workflow, asked.stage, asked.job, results)

    async def _result(self, needed: NeededResult) -> str:
        """A verified result; many stages may refer to the same."""
        if needed in self._remembered:
            self._remembered.move_to_end(needed)
            return self._remembered[needed]
        job, position, _ = needed.attempt
        whose = f"of {job}" + (f", task {position}" if position else "")
        data = await self._files.kept_result(needed.attempt, needed.size, needed.sha256, whose)
        text = data.decode()
        if needed not in self._remembered:
            self._remembered[needed] = text
            self._remembered_bytes += needed.size
        while self._remembered_bytes > REMEMBERED_BYTES_MAX:
            self._remembered_bytes -= self._remembered.popitem(last=False)[0].size
        return text


def _trouble(asked: FetchInputs, text: str, *, is_final: bool) -> GiveInputs:
    return GiveInputs(asked.workflow, asked.stage, asked.job, trouble=text, is_final=is_final)
