"""Fake of the coordinator's queues of calls: one real queue for each executor, and nobody waits."""

from __future__ import annotations

from phalanx.api.schema.calls import (
    CallsReply,
    CallsRequest,
    GiveReply,
    GiveRequest,
    ResultsQuery,
    ResultsReply,
    TakeReply,
    TakeRequest,
)
from phalanx.coordinator.call_queue import CallQueue


class FakeCalls:
    """Implements the part of `Commands` about calls. A worker serves the executor that has the name of its job."""

    def __init__(self) -> None:
        super().__init__()
        self.call_queues: dict[str, CallQueue] = {}

    async def post_calls(self, user: str, name: str, request: CallsRequest) -> CallsReply:
        queue = self.call_queues.setdefault(name, CallQueue(name, request.python, 0.0))
        return CallsReply(queue.id, queue.post(request.batches, 0.0), queue.withdraw(request.withdrawn))

    async def call_results(self, user: str, name: str, query: ResultsQuery) -> ResultsReply:
        queue = self.call_queues.get(name)
        if queue is None:
            return ResultsReply("")
        results = queue.results_after(query.after)
        return ResultsReply(queue.id, queue.last_of(results, query.after), results)

    async def close_calls(self, user: str, name: str) -> CallsReply:
        return CallsReply("" if self.call_queues.pop(name, None) is None else name)

    async def take_calls(self, job: str, request: TakeRequest) -> TakeReply:
        queue = self.call_queues.get(job)
        if queue is None:
            return TakeReply("absent")
        worker = queue.hear(request.task, request.attempt, 0.0)
        return TakeReply("open", queue.take(worker, request.want, request.known))

    async def give_results(self, job: str, request: GiveRequest) -> GiveReply:
        queue = self.call_queues.get(job)
        if queue is None:
            return GiveReply("absent")
        queue.give(request.results, request.returned, queue.hear(request.task, request.attempt, 0.0))
        return GiveReply("open")
