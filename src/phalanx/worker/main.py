"""The worker: it takes calls from the coordinator, lets a process of its own run them, and gives the results back.

Three threads share what is in hand: the main one sends results and signs of life, and looks after the process; one
asks for calls; one reads from the process. A process that died, or that was stopped, is replaced; the call that it ran
is reported as such, and those behind it are given back. The worker ends when there was nothing to do for a while, when
its executor is closed, or when its token is no longer good because its job has ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from phalanx.api.schema.calls import BATCH_CALLS_MAX, CallBatch, CallResult, GiveRequest, TakeRequest
from phalanx.client import executor_calls
from phalanx.client.access import ApiAccess, transport
from phalanx.client.calls import Call
from phalanx.client.client import Client
from phalanx.client.executor_calls import PAUSES_S
from phalanx.clock import SystemClock
from phalanx.errors import Conflict, Forbidden, NotFound, Unauthorized, Unavailable
from phalanx.tls import TlsFiles, client_context
from phalanx.worker.calls import CallsInHand
from phalanx.worker.environment import WorkerEnvironment
from phalanx.worker.frames import (
    CallEnded,
    CallsReady,
    CallsReturned,
    FrameReader,
    FromProcess,
    ReturnCalls,
    RunCalls,
    write_frame,
)

BEAT_S = 2.0
LOOK_S = 0.5  # between two looks at the process while calls are in hand
POLL_S = 10.0
GATHER_S = 0.002  # results of short calls travel together
STOPPED = ("T", "t")  # states of a process that was stopped by a signal or a debugger
OVER = (Unauthorized, Forbidden, NotFound)  # the job has ended

T = TypeVar("T")


def serve(environment: WorkerEnvironment) -> int:
    """Serve calls; the exit code."""
    files = TlsFiles(Path(environment.ca_file)) if environment.ca_file else TlsFiles()
    addresses = tuple(environment.address.split(","))
    access = ApiAccess(addresses, environment.token, vouched=files.are_there, tls_files=files)
    if addresses[0].startswith("https://"):
        access = access._replace(tls=client_context(files))
    with Client(token=environment.token, exchange=transport(access)) as client:
        return Worker(client, environment).run()


class Worker:
    """One worker and its process."""

    def __init__(self, client: Client, environment: WorkerEnvironment) -> None:
        self._client = client
        self._environment = environment
        self._job = environment.task.partition(".")[0]
        self._clock = SystemClock()
        self._hand = CallsInHand()
        self._changed = threading.Condition()
        self._process: CallRunner | None = None
        self._over: BaseException | None = None  # why it ends before its time
        self._busy_at = self._clock.monotonic()
        self._has_started = False  # the process has been ready once
        self._is_closed = False
        self._queue = ""  # the one that was told what is in hand

    def run(self) -> int:
        self._start()
        threading.Thread(target=self._guarded, args=(self._take,), daemon=True).start()
        self._guarded(self._give)
        if self._process is not None:
            self._process.end()
        if self._over is None or isinstance(self._over, OVER):
            return 0
        raise self._over

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a thread's work; what ends it ends the worker."""
        try:
            work()
        except (Conflict, Unavailable, *OVER) as error:
            with self._changed:
                self._over = self._over or error
                self._changed.notify_all()

    # Asking for calls.

    def _take(self) -> None:
        number = received = 0
        while not self._is_over:
            with self._changed:
                while not (want := self._hand.want) and not self._is_over:
                    self._changed.wait(BEAT_S)
                known = list(self._hand.known)
            number += 1
            request = TakeRequest(
                self._environment.task,
                self._environment.attempt,
                executor_calls.python_version(),
                number,
                received,
                max(1, want),
                known,
                POLL_S,
            )
            reply = self._asked(executor_calls.take(self._job, request))
            if reply is None:
                return
            received = number
            if reply.state == "closed":
                with self._changed:
                    self._is_closed = True
                    self._changed.notify_all()
                return
            for batch in reply.batches:
                self._given(batch)

    def _given(self, batch: CallBatch) -> None:
        with self._changed:
            process = self._process or self._start()
            self._busy_at = now = self._clock.monotonic()
            if (
                not batch.function and batch.digest not in self._hand.known
            ):  # a process has died since we asked
                self._hand.returned += [call.id for call in batch.calls]
                self._changed.notify_all()
                return
            self._hand.add(batch, now)
        calls = [(call.id, call.arguments) for call in batch.calls]
        process.send(RunCalls(batch.digest, batch.function, calls))

    # Giving results, and looking after the process.

    def _give(self) -> None:
        while True:
            with self._changed:
                if not self._hand.results and not self._hand.returned and not self._is_over:
                    self._changed.wait(LOOK_S if self._hand.running else BEAT_S)
                if len(self._hand.results) == 1 and self._hand.running:
                    self._changed.wait(GATHER_S)
                self._look()
                results, returned = self._hand.next_message()
                if self._is_over or (not results and self._is_idle):
                    return
            self._deliver(results, returned)

    def _deliver(self, results: list[CallResult], returned: list[int]) -> None:
        request = GiveRequest(self._environment.task, self._environment.attempt, results, returned)
        reply = self._asked(executor_calls.give(self._job, request))
        if reply is None:
            return
        if reply.queue != self._queue:
            self._queue = reply.queue
            if reply.queue:
                self._tell_holding()
        with self._changed:
            if reply.state == "open":
                self._hand.sent(len(results), len(returned))
            elif reply.state == "closed":
                self._is_closed = True
            elif results:  # nobody wants them now: its client may be back in a moment
                self._changed.wait(PAUSES_S[2])

    def _tell_holding(self) -> None:
        """There is another queue: the calls in hand need not be given to others."""
        with self._changed:
            holding = [*self._hand.running, *(each.id for each in self._hand.results)][:BATCH_CALLS_MAX]
        if holding:
            request = GiveRequest(self._environment.task, self._environment.attempt, holding=holding)
            self._asked(executor_calls.give(self._job, request))

    def _look(self) -> None:
        """Whether the process lives, runs, and is not stuck in one call with others behind it."""
        process, now = self._process, self._clock.monotonic()
        if process is None:
            return
        if process.has_ended:
            self._process = None
            if not self._has_started:
                raise Unavailable(
                    f"the process for calls could not start: {process.told()}", reason="WorkerFailed"
                )
            self._hand.died(process.told())
            self._changed.notify_all()
        elif self._hand.running and process.is_stopped():
            process.kill()
        elif self._hand.is_stuck(now):
            process.send(ReturnCalls())

    def _start(self) -> CallRunner:
        self._process = CallRunner(self._heard, self._environment.path)
        return self._process

    def _heard(self, process: CallRunner, messages: list[FromProcess] | None) -> None:
        """The process has said something, or has ended."""
        with self._changed:
            if process is self._process and messages:
                self._read(messages)
            self._changed.notify_all()

    def _read(self, messages: list[FromProcess]) -> None:
        self._busy_at = now = self._clock.monotonic()
        ended: list[CallResult] = []
        for message in messages:
            if isinstance(message, CallEnded):
                outcome, value = message.outcome, message.value
                ended.append(CallResult(message.id, outcome, value, message.text, message.code))  # type: ignore[arg-type]
            elif isinstance(message, CallsReturned):
                self._hand.gave_back(message.ids)
            elif isinstance(message, CallsReady):
                self._has_started = True
        if ended:
            self._hand.ended(ended, now)

    @property
    def _is_over(self) -> bool:
        return self._over is not None or self._is_closed

    @property
    def _is_idle(self) -> bool:
        return not self._hand.running and self._clock.monotonic() - self._busy_at > self._environment.idle_s

    def _asked(self, call: Call[T]) -> T | None:
        """The answer of a coordinator that may be away for a while; None if the worker ends meanwhile."""
        return executor_calls.ask_patiently(self._client, call, self._is_over_after)

    def _is_over_after(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, seconds)


class CallRunner:
    """The process that runs calls, and its pipes."""

    def __init__(self, heard: Callable[[CallRunner, list[FromProcess] | None], None], path: str) -> None:
        their_in, self._in = os.pipe()
        self._out, their_out = os.pipe()
        program = "import sys; sys.path += [p for p in sys.argv[3].split(':') if p and p not in sys.path];"
        program += "from phalanx.worker.call_process import main; main()"
        argv = [sys.executable, "-c", program, str(their_in), str(their_out), path]
        self._child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(their_in, their_out))
        os.close(their_in)
        os.close(their_out)
        self._heard = heard
        self._writing = threading.Lock()
        self._was_stopped = False
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: RunCalls | ReturnCalls) -> None:
        try:
            with self._writing:
                write_frame(self._in, message)
        except OSError:  # it has ended, which is noticed elsewhere
            return

    @property
    def has_ended(self) -> bool:
        return self._child.poll() is not None

    def is_stopped(self) -> bool:
        """Whether it was found stopped twice in a row: one that is paused with its worker goes on with it."""
        try:
            state = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(") ")[2][:1]
        except OSError:
            return False
        before, self._was_stopped = self._was_stopped, state in STOPPED
        return before and self._was_stopped

    def kill(self) -> None:
        self._child.kill()

    def end(self) -> None:
        """Close its pipe, which ends it, and do not wait for longer than a moment."""
        os.close(self._in)
        try:
            self._child.wait(PAUSES_S[-1])
        except subprocess.TimeoutExpired:
            self._child.kill()

    def told(self) -> str:
        """How it ended, for people."""
        code = self._child.wait()
        if code < 0:
            return f"the process of the call was ended by {signal.Signals(-code).name}"
        return f"the process of the call ended with exit code {code}"

    def _read(self) -> None:
        reader = FrameReader(self._out, FromProcess)
        while (messages := reader.read()) is not None:
            self._heard(self, messages)  # type: ignore[arg-type]
        self._child.wait()
        os.close(self._out)
        self._heard(self, None)
