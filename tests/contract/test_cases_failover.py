"""Cases C33, C36, C37 and C40 of the contract: one coordinator after another, asked of every store.

The table of all cases is in `test_cases.py`.
"""

from __future__ import annotations

import pytest

from phalanx.core.cluster.events import AttemptEnded, TermOpened
from phalanx.core.model.orders import AttemptKey, Disposition, Phase, Start, Status, Stop
from phalanx.errors import NotActive
from phalanx.link import wire
from tests.contract.backends import KINDS, LEASE_S, WAYS, Backend
from tests.contract.coordinators import (
    CoordinatorGroup,
    Runner,
    StartedCoordinator,
    a_coordinator_group,
    ended,
    kept,
)
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", [*KINDS, *WAYS], indirect=True)]


# C33


async def test_c33_epochs_only_grow_over_restarts_and_changes_of_the_leader(backend: Backend):
    async with a_coordinator_group(backend) as group:
        seats = [await group.coordinator("c1")]
        await seats[-1].kill()
        seats.append(await group.coordinator("c1"))  # its former self needs not wait for its own lease
        await seats[-1].resign()
        seats.append(await group.coordinator("c1"))
        for name in ("c2", "c1", "c2"):
            follower = await group.coordinator(name)
            assert not follower.is_active
            await group.hand_over(seats[-1], follower)
            seats.append(follower)
        await seats[-1].kill()
        seats.append(await group.coordinator("c2"))
        n1 = await group.runner(seats[-1], "n1")
        opened = [each.epoch for each in await group.log() if isinstance(each, TermOpened)]
        assert len(opened) == len(seats)
        assert opened == sorted(set(opened))
        assert n1.epoch == opened[-1]


# C36


async def test_c36_a_standby_refuses_wishes_and_runners_and_answers_questions(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1, c2 = await group.coordinator("c1"), await group.coordinator("c2")
        n1 = await group.runner(c1, "n1")
        key = await n1.started(await c1.submit())
        await n1.begin(key)
        await until(lambda: kept(c2) == kept(c1))
        before = kept(c1)
        for options in (c2.submit(), c2.commands.cancel(key[0]), c2.commands.drain("n1", "new fans")):
            with pytest.raises(NotActive) as caught:
                await options
            assert caught.value.extra == {"leader": "http://c1:7433"}
        hello = wire.HelloMessage(wire.VERSION, n1.token, "n1", "a", "of n1", n1.capacity, n1.epoch, [])
        beat = wire.Beat(n1.epoch, 1.0, [], n1.generation)
        status = wire.Reports(n1.epoch, [ended(key)], n1.generation)
        for message in (hello, beat, status):
            await is_sent_away(c2, message)
        assert (await c2.commands.task(key[0])).status == "Running"
        assert (await c2.commands.job(key[0])).id == key[0]
        assert [node.name for node in await c2.commands.nodes()] == ["n1"]
        view = (await c2.commands.cluster()).coordinator
        assert view is not None and (view.role, view.leader) == ("Standby", "c1")
        assert kept(c2) == kept(c1) == before


async def is_sent_away(standby: StartedCoordinator, message: wire.Message) -> None:
    """Whatever a runner sends to a standby, it is answered with the leader, and the connection ends."""
    runner = Runner("n1")
    standby.connect(runner)
    answer = await runner.ask(message, wire.Rejected)
    assert (answer.code, answer.retry) == ("NotActive", True)
    assert answer.leader == ("" if standby.way == "grpc" else "c1:7434")  # its port for frames
    await until(lambda: not runner.is_open)
    assert runner.heard == [answer]


# C37. A job of ours is never "committing": nothing is left to be done after the end of its last task is durable.


class Story:
    """Jobs of which each is at another point of its life when their leader is killed."""

    def __init__(self, leader: StartedCoordinator, n1: Runner) -> None:
        self._leader = leader
        self._n1 = n1
        self.keys: dict[str, AttemptKey] = {}

    async def begin(self) -> None:
        n1, leader = self._n1, self._leader
        id = await leader.submit(cores=64, allow_infeasible=True, request_id="once")
        self.keys["submitted"] = (id, 0, 1)  # no node that is there could hold it
        for name in ("assigned", "launched", "running", "completed", "unheard", "cancelled"):
            self.keys[name] = await n1.started(await leader.submit())
        del n1.held[self.keys["assigned"]]  # the order to start it was lost on the way
        n1.held[self.keys["launched"]] = Phase.RUNNING  # and the leader was never told so
        for name in ("running", "completed", "unheard", "cancelled"):
            await n1.begin(self.keys[name])
        await leader.commands.cancel(self.keys["cancelled"][0])
        assert await n1.end(self.keys["unheard"]) == Disposition.ACCEPTED  # an answer that we pass over
        n1.held |= dict.fromkeys((self.keys["unheard"], self.keys["completed"]), Phase.ENDED)
        for name, status in (
            ("submitted", Status.PENDING),
            ("assigned", Status.ASSIGNED),
            ("launched", Status.ASSIGNED),
            ("running", Status.RUNNING),
            ("completed", Status.RUNNING),
            ("unheard", Status.COMPLETED),
            ("cancelled", Status.CANCELLED),
        ):
            assert leader.status(self.keys[name][0]) == status
        n1.say(wire.Reports(n1.epoch, [ended(self.keys["completed"])], n1.generation))  # on its way

    async def finish(self, group: CoordinatorGroup, follower: StartedCoordinator) -> None:
        """The runner comes back with its attempts, and ends them all under the new leader."""
        n1, keys = self._n1, self.keys
        former = list(n1.told_to(Start))
        await group.join(follower, n1)
        await n1.ordered(Stop, keys["cancelled"])
        await until(lambda: n1.told_to(Start) == [*former, keys["assigned"]])
        assert isinstance(await n1.beat(), wire.BeatAck)
        assert follower.status(keys["launched"][0]) == Status.RUNNING
        assert await n1.end(keys["unheard"]) == Disposition.DUPLICATE
        for name in ("assigned", "launched", "running", "completed", "cancelled"):
            assert await n1.end(keys[name]) in (Disposition.ACCEPTED, Disposition.DUPLICATE), name
            assert await n1.end(keys[name]) == Disposition.DUPLICATE, name
        big = await group.runner(follower, "big", cores=64)
        assert await big.end(await big.started(keys["submitted"][0])) == Disposition.ACCEPTED


async def test_c37_a_leader_killed_at_any_point_of_a_job_loses_and_repeats_nothing(backend: Backend):
    async with a_coordinator_group(backend, LEASE_S) as group:
        c1, c2 = await group.coordinator("c1"), await group.coordinator("c2")
        n1 = await group.runner(c1, "n1")
        story = Story(c1, n1)
        await story.begin()
        await group.killed(c1, c2)
        await story.finish(group, c2)
        statuses = {name: c2.status(key[0]) for name, key in story.keys.items()}
        assert statuses.pop("cancelled") == Status.CANCELLED
        assert set(statuses.values()) == {Status.COMPLETED}
        ends = [each.key for each in await group.log() if isinstance(each, AttemptEnded)]
        assert sorted(ends) == sorted(story.keys.values()), "each job ended once, in its first attempt"
        again = await c2.submit(cores=64, allow_infeasible=True, request_id="once")
        assert again == story.keys["submitted"][0]
        assert len(c2.state.jobs) == len(story.keys)
        assert c2.state.table.ledger("n1").is_empty and c2.state.table.ledger("big").is_empty


# C40


async def test_c40_what_was_cancelled_is_stopped_and_stays_so_under_the_next_leader(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1, c2 = await group.coordinator("c1"), await group.coordinator("c2")
        n1 = await group.runner(c1, "n1", cores=2)
        running, assigned = await n1.started(await c1.submit()), await n1.started(await c1.submit())
        await n1.begin(running)
        pending = await c1.submit(cores=2)
        jobs = [running[0], assigned[0], pending]
        assert list(map(c1.status, jobs)) == [Status.RUNNING, Status.ASSIGNED, Status.PENDING]
        for job in jobs:
            await c1.commands.cancel(job)
        assert list(map(c1.status, jobs)) == [Status.CANCELLED] * 3
        for key in (running, assigned):
            await n1.ordered(Stop, key)
        assert (
            await n1.end(assigned) == Disposition.ACCEPTED
        )  # it had succeeded before it was ordered to stop
        assert c1.status(assigned[0]) == Status.CANCELLED
        await group.hand_over(c1, c2)
        n1.heard.clear()
        await group.join(c2, n1)
        await n1.ordered(Stop, running)
        assert await n1.end(running) == Disposition.ACCEPTED
        assert await n1.end(running) == Disposition.DUPLICATE
        assert list(map(c2.status, jobs)) == [Status.CANCELLED] * 3
        assert n1.told_to(Start) == []
        ends = [each for each in await group.log() if isinstance(each, AttemptEnded)]
        assert [(each.key, each.status) for each in ends] == [
            (assigned, Status.CANCELLED),
            (running, Status.CANCELLED),
        ]
        assert c2.state.table.ledger("n1").is_empty
