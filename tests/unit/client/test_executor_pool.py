"""Threads of a pool of calls: what one misses while it asks the coordinator."""

from __future__ import annotations

from threading import Event, Thread
from typing import cast

from phalanx.client.executor_futures import RetryRule
from phalanx.client.executor_jobs import WorkerJobs
from phalanx.client.executor_pool import CallPool
from phalanx.client.pickles import PickledFunction
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import a_client, a_rest_app


class SlowJobs:
    """Jobs of workers whose submission is answered late."""

    workers = 1
    has_served = True

    def __init__(self) -> None:
        self.asked, self.answered = Event(), Event()

    def ensure(self, calls: int) -> None:
        self.asked.set()
        assert self.answered.wait(30.0)

    def review(self) -> None:
        pass

    def end(self, *, at_once: bool) -> None:
        pass


def test_a_pool_that_is_closed_while_it_submits_workers_ends():
    jobs = SlowJobs()
    with a_client(a_rest_app(FakeCommands())) as client:
        pool = CallPool(client, "e0123456789abcdef", cast(WorkerJobs, jobs), 0, lambda _: None)
        pool.add([(PickledFunction("digest", b"function"), b"arguments")], RetryRule(0, ()))
        assert jobs.asked.wait(30.0)
        closing = Thread(target=pool.close, kwargs={"at_once": True}, daemon=True)
        closing.start()
        pool._threads[1].join(30.0)  # the one that reads has ended: nobody wakes the other one any more
        jobs.answered.set()
        closing.join(20.0)
        assert not closing.is_alive()
