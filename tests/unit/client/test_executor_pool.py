"""Threads of a pool of calls: what one misses while it asks the coordinator."""

from __future__ import annotations

from threading import Event, Thread
from typing import cast

from phalanx.api.schema.calls import CallsReply
from phalanx.client.executor_futures import RetryRule
from phalanx.client.executor_jobs import WorkerJobs
from phalanx.client.executor_pool import CallPool
from phalanx.client.pickles import PickledFunction
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import a_client, a_rest_app


class ClosedCommands(FakeCommands):
    """Notes that the queue of calls was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = Event()

    async def close_calls(self, user: str, name: str) -> CallsReply:
        self.is_closed.set()
        return await super().close_calls(user, name)


class SlowJobs:
    """Jobs of workers whose submission is answered only after the queue was closed."""

    workers = 1
    has_served = True

    def __init__(self, answered: Event) -> None:
        self.asked, self._answered = Event(), answered

    def ensure(self, calls: int) -> None:
        self.asked.set()
        assert self._answered.wait(30.0)

    def review(self) -> None:
        pass

    def end(self, *, at_once: bool) -> None:
        pass


def test_a_pool_that_is_closed_while_it_submits_workers_ends():
    commands = ClosedCommands()
    jobs = SlowJobs(commands.is_closed)
    with a_client(a_rest_app(commands)) as client:
        pool = CallPool(client, "e0123456789abcdef", cast(WorkerJobs, jobs), 0, lambda _: None)
        pool.add([(PickledFunction("digest", b"function"), b"arguments")], RetryRule(0, ()))
        assert jobs.asked.wait(30.0)
        closing = Thread(target=pool.close, kwargs={"at_once": True}, daemon=True)
        closing.start()
        closing.join(20.0)
        assert not closing.is_alive()
