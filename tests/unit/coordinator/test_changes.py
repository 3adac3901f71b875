"""Jobs that are held, released and changed, as users ask for it and as runners are told."""

from __future__ import annotations

import pytest

from phalanx.api.schema.changes import HoldRequest, UpdateRequest
from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.cluster.inputs import Update
from phalanx.core.model.orders import Brief
from phalanx.errors import BadRequest, Conflict, Forbidden, PhalanxError, Unprocessable
from phalanx.link import wire
from tests.unit.coordinator.test_declarations import a_coordinator
from tests.unit.coordinator.test_dismissals import Told

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_hold_says_who_and_why_and_only_an_operator_undoes_an_operators() -> None:
    async with a_coordinator() as here:
        (id,) = (
            await here.commands.submit(SubmitRequest(["true"], array="0-3", begin="+1h"), "ada")
        ).task_ids
        held = await here.commands.hold(id, HoldRequest(" no data yet "), "op")
        assert (held.held, held.counts.pending) == ("no data yet (by op)", 4)
        assert (await here.commands.why(id)).dominant.code == "Held"
        with pytest.raises(Forbidden) as refused:
            await here.commands.release(id, "ada", is_operator=False)
        assert refused.value.reason == "HeldByAnother"
        assert (await here.commands.release(f"{id}.2", "root", is_operator=True)).held is None
        assert (await here.commands.hold(id, HoldRequest("mine"), "ada")).held == "mine (by ada)"
        assert (await here.commands.hold(id, HoldRequest(), "bob")).held == "mine (by ada)"
        taken = await here.commands.hold(id, HoldRequest("no"), "op", is_operator=True)
        assert taken.held == "no (by op)"  # or ada could release it
        assert (await here.commands.release(id, "op", is_operator=True)).held is None
        with pytest.raises(BadRequest) as one:
            await here.commands.hold(f"{id}.2", HoldRequest(), "ada")
        assert (one.value.reason, one.value.hint) == ("WholeJob", f"phalanx hold {id}")
        for reason in ("a\nb", "x" * 2000):
            with pytest.raises(PhalanxError, match="reason"):
                await here.commands.hold(id, HoldRequest(reason), "ada")


async def test_a_job_that_begins_later_says_when_and_can_be_let_start() -> None:
    async with a_coordinator() as here:
        (id,) = (await here.commands.submit(SubmitRequest(["true"], begin="+2h"), "ada")).task_ids
        view = await here.commands.job(id)
        assert view.begin_at is not None
        assert 7190 < view.begin_at - view.submitted_at < 7210
        dominant = (await here.commands.why(id)).dominant
        assert (dominant.code, dominant.numbers["begin_at"]) == ("BeginTime", view.begin_at)
        view = await here.commands.update(id, UpdateRequest(begin="now"), "ada", "user")
        assert (view.begin_at, view.revision) == (None, 1)
        assert (await here.commands.why(id)).dominant.code != "BeginTime"


@pytest.mark.parametrize(
    ("request_", "error", "part"),
    [
        (UpdateRequest(), BadRequest, "nothing to change"),
        (UpdateRequest(priority=10**12), Unprocessable, "priority: 1000000000000"),
        (UpdateRequest(time_limit="soon"), BadRequest, "time_limit: 'soon'"),
        (UpdateRequest(queue="no such queue"), BadRequest, "queue"),
        (UpdateRequest(begin="18:00"), BadRequest, "begin: '18:00' is not a time"),
        (UpdateRequest(priority=5000), Unprocessable, "priority: 5000 is too high"),
        (UpdateRequest(queue="night"), BadRequest, "night"),
        (UpdateRequest(time_limit=5, if_revision=3), Conflict, "revision 0, not 3"),
    ],
)
async def test_a_refused_change_names_the_field_and_the_value(
    request_: UpdateRequest, error: type[PhalanxError], part: str
) -> None:
    async with a_coordinator() as here:
        (id,) = (await here.commands.submit(SubmitRequest(["true"], begin="+1h"), "ada")).task_ids
        with pytest.raises(error) as refused:
            await here.commands.update(id, request_, "ada", "user")
        assert part in refused.value.detail
        assert (await here.commands.job(id)).revision == 0


async def test_no_queue_contradicts_begin_and_hold() -> None:
    async with a_coordinator() as here:
        with pytest.raises(BadRequest, match="no_queue and begin"):
            await here.commands.submit(SubmitRequest(["true"], no_queue=True, begin="+1h"), "ada")
        with pytest.raises(BadRequest, match="no_queue and hold"):
            await here.commands.submit(SubmitRequest(["true"], no_queue=True, hold=True), "ada")


async def test_a_job_can_be_submitted_held_and_its_owner_releases_it() -> None:
    async with a_coordinator() as here:
        (id,) = (await here.commands.submit(SubmitRequest(["true"], hold=True), "ada")).task_ids
        assert (await here.commands.job(id)).held == "by ada"
        assert (await here.commands.release(id, "ada", is_operator=False)).held is None


async def test_a_begin_that_has_passed_is_told() -> None:
    async with a_coordinator() as here:
        past = await here.commands.submit(SubmitRequest(["true"], begin="2020-01-01T00:00:00Z"), "ada")
        assert [each.partition(" has ")[0] for each in past.warnings] == ["begin: '2020-01-01T00:00:00Z'"]
        for begin in ("now", "+1h", None):
            assert (await here.commands.submit(SubmitRequest(["true"], begin=begin), "ada")).warnings == []


def test_runners_that_have_the_brief_get_it_with_the_new_limit() -> None:
    told = Told()
    told.cluster.give(Update("j1", "ada", time_limit_s=77.0))
    told.links.dispatch(told.cluster.turns[-1].effects)
    sent = {name: session.connection.sent[-1] for name, session in told.sessions.items()}  # type: ignore[attr-defined]
    briefs = [each for each in sent["n1"].orders if isinstance(each, Brief)]
    assert [(each.job, each.time_limit_s) for each in briefs] == [("j1", 77.0)]
    assert isinstance(sent["n2"], wire.Orders)
    assert all(each.job == "j2" for each in sent["n2"].orders if isinstance(each, Brief))


async def test_a_submission_that_is_sent_again_makes_one_job_also_if_its_time_has_moved_or_it_was_changed():
    async with a_coordinator() as here:
        asked = SubmitRequest(["true"], begin="+1h", request_id="r")
        first = await here.commands.submit(asked, "ada")
        again = await here.commands.submit(asked, "ada")  # an hour from now is later than it was
        assert (again.task_ids, again.replayed) == (first.task_ids, True)
        await here.commands.update(first.batch_id, UpdateRequest(priority=-3, begin="+2h"), "ada", "user")
        assert (await here.commands.submit(asked, "ada")).replayed
        with pytest.raises(Conflict) as other:
            await here.commands.submit(SubmitRequest(["false"], begin="+1h", request_id="r"), "ada")
        assert other.value.reason == "RequestIdReused"
