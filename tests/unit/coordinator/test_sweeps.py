"""Rows in pieces, failed tasks again, and jobs again with changes, through the REST app of a coordinator."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from phalanx.api.schema.apply import ApplyRequest
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.resubmission import changed
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.sweeps import RetryTasksRequest, RowsPiece
from phalanx.api.schema.workflows import StageSpec, WorkflowRequest, WorkflowSpec
from phalanx.client import calls
from phalanx.client.async_client import AsyncClient
from phalanx.client.sweeps import pieces
from phalanx.coordinator import retries, row_uploads
from phalanx.coordinator.main import Coordinator
from phalanx.coordinator.retries import failed_again
from phalanx.coordinator.row_uploads import EXPIRES_S, USER_UPLOADS_MAX, RowUploads
from phalanx.core.cluster.image import decode_state, encode_job, encode_state
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound, PhalanxError, TooMany, Unprocessable
from phalanx.store.protocol import Batch, History
from tests.support.clocks import ManualClock
from tests.unit.coordinator.test_declarations import a_coordinator
from tests.unit.coordinator.test_lookup import client_of

pytestmark = pytest.mark.anyio
ROWS = [[str(number), f"data {number}"] for number in range(10_000)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def here() -> AsyncIterator[Coordinator]:
    async with a_coordinator() as found:
        yield found


@pytest.fixture
async def ada(here: Coordinator) -> AsyncIterator[AsyncClient]:
    async with client_of(here, "ada") as client:
        yield client


def a_piece(number: int = 0, rows: list[list[str]] | None = None, upload: str = "u") -> RowsPiece:
    return RowsPiece(upload, number, ["a"], [["1"]] if rows is None else rows)


async def ended(here: Coordinator, client: AsyncClient, id: str, failed: tuple[int, ...]) -> None:
    """Have a job end, with these indexes failed and the others completed."""
    await client.cancel(id)
    job = here.leadership.state.jobs[id]
    assert job.job.array is not None
    for position, index in enumerate(job.job.array.indexes()):
        job.status[position] = Status.FAILED if index in failed else Status.COMPLETED
    job.counts = [job.status.count(status) for status in Status]


async def forgotten(here: Coordinator, id: str) -> None:
    """Have a job leave memory for the history."""
    state = here.leadership.state
    record = History(id, encode_job(state.jobs[id]), state.jobs[id].arrival)
    await here.store.append(state.epoch, Batch(state.revision + 1, b"\x90"), [record])
    state.names.remove(state.jobs.pop(id))
    state.job_ids.remove(id)
    state.revision += 1


async def test_rows_come_in_pieces_and_become_a_job_as_a_whole(here: Coordinator, ada: AsyncClient):
    reply = await ada.submit(
        command=["t", "{a}", "{b}"], rows=[{"a": a, "b": b} for a, b in ROWS], params={"lr": "1,2"}
    )
    assert reply.accepted[0].tasks == 20_000
    task = await ada.task(f"{reply.batch_id}.20000")
    assert task.params == {"a": "9999", "b": "data 9999", "lr": "2"}
    assert (await ada.job(reply.batch_id)).params == {"a": "10000 rows", "b": "10000 rows", "lr": "1,2"}
    state = here.leadership.state
    again = decode_state(encode_state(state), state.rules)
    assert again.jobs[reply.batch_id].job == state.jobs[reply.batch_id].job
    record = encode_job(state.jobs[reply.batch_id])
    assert len(record) < 1_500_000  # columns of 20,000 tasks, and 10,000 rows in blocks


async def test_an_upload_belongs_to_its_user(here: Coordinator, ada: AsyncClient):
    for call in pieces("mine", ["a", "b"], ROWS):
        await ada._ask(call)
    request = SubmitRequest(command=["t"], cwd="/", rows="mine")
    async with client_of(here, "eve") as eve:
        with pytest.raises(Conflict) as told:
            await eve.submit(request)
        assert told.value.reason == "UploadUnknown"
        with pytest.raises(Conflict):
            await eve._ask(next(iter(list(pieces("mine", ["a", "b"], ROWS))[1:])))
    assert (await ada.submit(request)).accepted[0].tasks == 10_000
    with pytest.raises(Conflict):
        await ada.submit(request)


async def test_a_lost_answer_is_asked_for_again_and_makes_one_job(here: Coordinator, ada: AsyncClient):
    for call in pieces("once", ["a", "b"], ROWS):
        await ada._ask(call)
        await ada._ask(call)
    submission = calls.submit(SubmitRequest(command=["t"], cwd="/", rows="once", request_id="r-1"), {})
    first, again = await ada._ask(submission), await ada._ask(submission)
    assert (first.task_ids, again.task_ids, again.replayed) == (first.task_ids, first.task_ids, True)
    assert len(here.leadership.state.jobs) == 1


async def test_rows_that_were_lost_are_sent_again(ada: AsyncClient, monkeypatch: pytest.MonkeyPatch):
    taken, lost = RowUploads.take, list[str]()

    def forgets_once(self: RowUploads, user: str, piece: RowsPiece) -> Any:
        if piece.piece == 1 and not lost:
            lost.append(piece.upload)
            self.drop(user, piece.upload)
        return taken(self, user, piece)

    monkeypatch.setattr(RowUploads, "take", forgets_once)
    reply = await ada.submit_rows(SubmitRequest(command=["t", "{a}"]), ["a", "b"], ROWS)
    assert (lost != [], reply.accepted[0].tasks) == (True, 10_000)


@pytest.mark.parametrize(
    ("sent", "error", "said"),
    [
        ([a_piece(1)], Conflict, "no upload 'u'"),
        ([a_piece(), a_piece(2)], Conflict, "1 is expected"),
        ([a_piece(), a_piece(0, [["2"]])], Conflict, "other rows"),
        ([a_piece(-1)], Unprocessable, "piece: -1"),
        ([a_piece(rows=[])], BadRequest, "piece 0 has none"),
        ([a_piece(rows=[["1"], ["1", "2"]])], BadRequest, "row 2 has 2 values, expected 1"),
        ([a_piece(), a_piece(1, [["a\0"]])], BadRequest, "row 2, a: .*NUL"),
        ([a_piece(upload="")], BadRequest, "upload: it is empty"),
        ([a_piece(upload="u" * 65)], BadRequest, "upload: 65 bytes"),
        ([RowsPiece("u", 0, [], [[]])], BadRequest, "columns: there is no column"),
        ([RowsPiece("u", 0, ["a", "a"], [["1", "2"]])], BadRequest, "'a' names two columns"),
        ([RowsPiece("u", 0, ["a b"], [["1"]])], BadRequest, "column 1: 'a b'"),
        ([a_piece(), RowsPiece("u", 1, ["b"], [["1"]])], BadRequest, "columns: piece 1"),
    ],
)
def test_a_wrong_piece_is_refused_and_nothing_of_it_is_kept(
    sent: list[RowsPiece], error: type[PhalanxError], said: str
):
    uploads = RowUploads(ManualClock())
    for piece in sent[:-1]:
        uploads.take("ada", piece)
    with pytest.raises(error, match=said):
        uploads.take("ada", sent[-1])
    assert not sent[:-1] or uploads.rows("ada", "u").count == len(sent) - 1


def test_the_bytes_of_one_users_uploads_leave_others_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_uploads, "USER_BYTES_MAX", 100)
    uploads = RowUploads(ManualClock())
    uploads.take("eve", a_piece(rows=[["x" * 90]]))
    uploads.take("eve", a_piece(rows=[["x" * 90]], upload="second"))
    for piece in (a_piece(1), a_piece(upload="third")):
        with pytest.raises(TooMany, match="hold more than"):
            uploads.take("eve", piece)
    assert uploads.take("ada", a_piece(rows=[["x" * 90]])).rows == 1
    uploads.drop("eve", "second")
    assert uploads.take("eve", a_piece(1)).rows == 2


def test_uploads_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch):
    clock = ManualClock()
    uploads = RowUploads(clock)
    for number in range(USER_UPLOADS_MAX):
        uploads.take("eve", a_piece(upload=f"u{number}"))
    with pytest.raises(TooMany, match=f"{USER_UPLOADS_MAX} of yours"):
        uploads.take("eve", a_piece(upload="more"))
    uploads.take("ada", a_piece())
    clock.at += EXPIRES_S + 1
    uploads.take("eve", a_piece(upload="more"))
    with pytest.raises(Conflict):
        uploads.rows("ada", "u")
    monkeypatch.setattr(row_uploads, "TASKS_MAX", 2)
    with pytest.raises(Unprocessable, match="more than 2"):
        uploads.take("ada", a_piece(rows=[["1"], ["2"], ["3"]]))


async def test_failed_tasks_run_again_under_their_indexes(here: Coordinator, ada: AsyncClient):
    first = (
        await ada.submit(command=["t", "{x}"], params={"x": "10..19"}, env={"A": "b"}, name="s")
    ).batch_id
    with pytest.raises(Conflict) as told:
        await ada.retry(first)
    assert told.value.reason == "NotEnded"
    await ended(here, ada, first, (3, 4, 8))
    retry = (await ada.retry(first, request_id="again")).batch_id
    view = await ada.job(retry)
    assert (view.array, view.repeats, view.env, view.name) == ("3-4,8", first, {"A": "b"}, "s")
    assert [task.params["x"] for task in (await ada.tasks(retry)).items] == ["12", "13", "17"]
    assert (await ada.job(first)).retries == [retry]
    assert (await ada.retry(first, request_id="again")).replayed
    with pytest.raises(Conflict) as told:
        await ada.retry(first)
    assert told.value.reason == "NothingFailed"
    await ended(here, ada, retry, (4,))
    third = (await ada.retry(retry)).batch_id
    assert (await ada.job(third)).array == "4"
    assert (await ada.job(third)).repeats == first
    state = here.leadership.state
    assert decode_state(encode_state(state), state.rules).repeated == {first: [retry, third]}


async def test_one_failed_task_runs_again_alone(here: Coordinator, ada: AsyncClient):
    first = (await ada.submit(command=["t", "{x}"], params={"x": "10..19"})).batch_id
    await ended(here, ada, first, (3, 4))
    with pytest.raises(Conflict) as told:
        await ada.retry(f"{first}.5")
    assert told.value.reason == "NothingFailed"
    with pytest.raises(NotFound):
        await ada.retry(f"{first}.11")
    retry = (await ada.retry(f"{first}.4", request_id="four")).batch_id
    assert [task.params["x"] for task in (await ada.tasks(retry)).items] == ["13"]
    assert (await ada.retry(f"{first}.4", request_id="four")).replayed
    with pytest.raises(Conflict) as told:
        await ada.retry(f"{first}.4")
    assert (told.value.detail, told.value.hint) == (
        "task 4 of 1 has not failed, as last retried in 2",
        "that retry has not ended: phalanx wait 2",
    )
    with pytest.raises(Conflict) as told:
        await ada.retry(f"{first}.5")
    assert (told.value.detail, told.value.hint) == ("task 5 of 1 has not failed", "")
    with pytest.raises(Conflict) as told:
        await ada.retry(f"{first}.3", request_id="four")
    assert told.value.reason == "RequestIdReused"
    await ended(here, ada, retry, (4,))
    assert (await ada.job((await ada.retry(f"{retry}.4")).batch_id)).array == "4"
    assert (await ada.job((await ada.retry(first)).batch_id)).array == "3"


async def test_jobs_of_the_history_are_retried_and_resubmitted(here: Coordinator, ada: AsyncClient):
    rows = [{"x": number} for number in range(1000)]
    first = (await ada.submit(command=["t", "{x}"], rows=rows)).batch_id
    await ended(here, ada, first, (2, 900))
    await forgotten(here, first)
    retry = (await ada.retry(first)).batch_id
    await ended(here, ada, retry, (900,))
    params = here.leadership.state.jobs[retry].job.params
    assert params is not None
    assert params.rows is not None
    assert [bool(block) for block in params.rows.blocks] == [True, False, False, True]
    await forgotten(here, retry)
    last = (await ada.retry(first)).batch_id
    assert [task.params for task in (await ada.tasks(last)).items] == [{"x": "899"}]
    whole = await ada.resubmit(first, {"memory": "2GiB"})
    assert whole.accepted[0].tasks == 1000


@pytest.mark.parametrize(
    ("kind", "text", "params"),
    [
        ("each_line", "a b\n\n$(c)\n", [{"line": "a b"}, {"line": "$(c)"}]),
        ("from_csv", "lr;seed\n0.1;1\n", [{"lr": "0.1", "seed": "1"}]),
        ("from_json", '{"x": 1}\n{"x": true}\n', [{"x": "1"}, {"x": "true"}]),
    ],
)
async def test_files_of_parameters_are_read_as_the_command_line_reads_them(
    here: Coordinator, ada: AsyncClient, tmp_path: Path, kind: str, text: str, params: list[dict[str, str]]
):
    file = tmp_path / "file"
    file.write_text(text)
    command = ["t", f"{{{next(iter(params[0]))}}}"]
    given: Any = {kind: file}
    job = await ada.submit(command=command, **given)
    assert [task.params for task in (await ada.tasks(job.id)).items] == params
    with pytest.raises(BadRequest, match="gone cannot be read"):
        await ada.submit(command=command, **given | {kind: str(tmp_path / "gone")})


async def test_two_retries_at_once_run_each_task_once(
    here: Coordinator, ada: AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    first = (await ada.submit(command=["t"], params={"x": "1..5"})).batch_id
    await ended(here, ada, first, (1, 2))
    ask, raced = here.leadership.ask, list[str]()

    async def after_another(inputs: Any) -> Any:
        if not raced:
            raced.append("")
            raced.append((await here.commands.retry(first, RetryTasksRequest(), "ada")).batch_id)
        return await ask(inputs)

    monkeypatch.setattr(here.leadership, "ask", after_another)
    with pytest.raises(Conflict) as told:
        await ada.retry(first)
    assert told.value.reason == "NothingFailed"
    assert here.leadership.state.repeated == {first: raced[1:]}


async def test_a_whole_job_is_retried_if_its_tasks_belong_together(here: Coordinator, ada: AsyncClient):
    gang = (await ada.gang(["t"], 3)).batch_id
    await ada.cancel(gang)
    with pytest.raises(Conflict):
        await ada.retry(gang)
    with pytest.raises(Conflict) as told:
        await ada.retry(f"{gang}.1", cancelled=True)
    assert told.value.reason == "NotDivisible"
    retry = (await ada.retry(gang, cancelled=True)).batch_id
    assert (await ada.job(retry)).tasks == 3


async def test_a_job_that_had_standard_input_is_not_run_again_without_it(ada: AsyncClient):
    first = (await ada.submit(command=["t"], attached=True, stdin=True)).batch_id
    await ada.cancel(first)
    for again in (ada.retry(first, cancelled=True), ada.resubmit(first)):
        with pytest.raises(Conflict) as refused:
            await again
        assert refused.value.reason == "InputNotKept"


async def test_nobody_shows_the_output_of_what_runs_again(here: Coordinator, ada: AsyncClient):
    first = (await ada.submit(command=["t"], attached=True)).batch_id
    await ada.cancel(first)
    for again in (await ada.retry(first, cancelled=True), await ada.resubmit(first)):
        assert not here.leadership.state.jobs[again.batch_id].job.groups[0].command.attached


async def test_only_the_owner_has_a_job_run_again(here: Coordinator, ada: AsyncClient):
    first = (await ada.submit(command=["t"], array="1-2")).batch_id
    await ended(here, ada, first, (1,))
    async with client_of(here, "eve") as eve:
        for ask in (eve.retry, eve.resubmit):
            with pytest.raises(Forbidden):
                await ask(first)
    with pytest.raises(NotFound):
        await ada.retry("f" * 26)


async def test_a_job_runs_again_with_changes(ada: AsyncClient):
    first = await ada.submit(
        command=["t", "{lr}", "{seed}"], params={"lr": "1,2", "seed": "1..3"}, env={"A": "b"}, at_once=2
    )
    changes = {
        "cores": "2", "memory": "2GiB", "gpus": 1, "time_limit": "1h", "priority": -3, "env.C": "d",
        "max_retries": "0", "name": "again", "param.seed": "7,8",
    }  # fmt: skip
    reply = await ada.resubmit(first.batch_id, changes, request_id="r")
    assert (await ada.resubmit(first.batch_id, changes, request_id="r")).task_ids == reply.task_ids
    view = await ada.job(reply.batch_id)
    assert (view.tasks, view.request.cores, view.request.memory_bytes, view.request.gpus) == (
        4,
        2,
        2 << 30,
        1,
    )
    assert (view.time_limit_s, view.priority, view.env) == (3600.0, -3, {"A": "b", "C": "d"})
    assert (view.name, view.max_retries, view.groups[0].at_once, view.repeats) == ("again", 0, 2, "")
    assert [task.params["seed"] for task in (await ada.tasks(reply.batch_id)).items] == ["7", "8"] * 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": "red"}, "'colour' cannot be changed"),
        ({"limit": 3}, "did you mean at_once"),
        ({"gpus": "many"}, "gpus: 'many' is not a whole number"),
        ({"gpus": -1}, "gpus"),
        ({"memory": "lots"}, "memory"),
        ({"cores": "x"}, "not a number of cores"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"param.x": "1"}, "no grid parameter 'x'"),
        ({"param.lr": ""}, "empty value"),
        ({"param.lr": "1..2000000"}, "too many"),
        ({"env.": "x"}, "env"),
        ({"queue": "No Queue"}, "queue"),
        ({"name": "17"}, "name"),
        ({"priority": 2_000_000_000}, "priority"),
        ({"priority": "1" * 5000}, "not a whole number"),
        ({"queue": 5}, "no queue '5'"),
        ({"queue": ["default"]}, "neither a text nor a number"),
        ({"exclude": {"n1": 1}}, "not a list of nodes"),
        ({"nodes": ["n1"], "exclude": "n1,n2"}, "no node is left"),
        ({"memory": 1.5}, "not a whole number of bytes"),
        ({"memory": True}, "neither a text nor a number"),
        ({"grace": None}, "neither a text nor a number"),
        ({"cwd": {"/": 1}}, "neither a text nor a number"),
    ],
)
async def test_a_wrong_change_is_refused_by_name(
    here: Coordinator, ada: AsyncClient, changes: Any, said: str
):
    first = (await ada.submit(command=["t", "{lr}"], params={"lr": "1,2"})).batch_id
    with pytest.raises((BadRequest, Unprocessable), match=said):
        await ada.resubmit(first, changes)
    assert len(here.leadership.state.jobs) == 1


async def test_a_job_is_submitted_once_more_on_other_nodes(here: Coordinator, ada: AsyncClient):
    first = (await ada.submit(command=["t"])).batch_id
    job = here.leadership.state.jobs[first].job
    for given in ("n2,n1", ["n1", "n2"], ["n1,n2"]):
        assert changed(job, {"exclude": given}).groups[0].request.exclude == ("n1", "n2")
    again = await ada.resubmit(first, {"exclude": "n1,n2"})
    assert (await ada.job(again.batch_id)).request.exclude == ["n1", "n2"]
    without = changed(changed(job, {"exclude": "n1", "nodes": "n2"}), {"exclude": "none"}).groups[0].request
    assert (without.nodes, without.exclude) == (("n2",), ())


async def test_variables_of_a_resubmission_are_sealed_whatever_its_job_had(
    here: Coordinator, ada: AsyncClient
):
    first = (await ada.submit(command=["t"], export="NONE")).batch_id
    assert here.leadership.state.jobs[first].job.groups[0].command.environment == ""
    again = (await ada.resubmit(first, {"env.KEY": "a secret"})).batch_id
    assert here.leadership.state.jobs[again].job.groups[0].command.env == {}
    assert (await ada.job(again)).env == {"KEY": "a secret"}
    assert b"a secret" not in encode_state(here.leadership.state)


async def test_variables_of_resubmissions_do_not_add_up_beyond_the_limit(ada: AsyncClient):
    most = {f"V{number}": "x" * 100_000 for number in range(10)}
    first = (await ada.submit(command=["t"], export="NONE", env=most)).batch_id
    with pytest.raises(BadRequest, match="too many"):
        await ada.resubmit(first, {"env.W": "x" * 100_000})


async def test_what_cannot_be_opened_is_not_resubmitted_with_variables_beside_it(
    here: Coordinator, ada: AsyncClient
):
    first = (await ada.submit(command=["t"], env={"A": "b"})).batch_id
    [kept] = here.leadership.state.environments
    kept.sealed = kept.sealed[:1] + b"\0\0\0\0" + kept.sealed[5:]  # by a secret that is gone
    with pytest.raises(Conflict) as told:
        await ada.resubmit(first, {"env.KEY": "a secret"})
    assert told.value.reason == "EnvironmentClosed"
    assert len(here.leadership.state.jobs) == 1


async def test_a_request_id_answers_for_its_own_request_alone(here: Coordinator, ada: AsyncClient):
    first = (await ada.submit(command=["true"], array="1-3", request_id="submit")).batch_id
    other = (await ada.submit(command=["false"], array="1-3")).batch_id
    for each in (first, other):
        await ended(here, ada, each, (2,))
    retry = await ada.retry(first, request_id="retry")
    again = await ada.resubmit(first, {"cores": 2}, request_id="resubmit")
    assert (await ada.retry(first, request_id="retry")).batch_id == retry.batch_id
    assert (await ada.resubmit(first, {"cores": 2}, request_id="resubmit")).batch_id == again.batch_id
    wrong: list[Awaitable[Any]] = [
        *(ada.retry(first, request_id=used) for used in ("submit", "resubmit")),
        ada.retry(other, request_id="retry"),
        *(ada.resubmit(first, {"cores": 2}, request_id=used) for used in ("submit", "retry")),
        ada.resubmit(first, {"cores": 3}, request_id="resubmit"),
        ada.resubmit(other, {"cores": 2}, request_id="resubmit"),
        ada._ask(calls.submit(SubmitRequest(["x"], rows="gone", request_id="submit"), {})),
    ]
    for asked in wrong:
        with pytest.raises(Conflict) as caught:
            await asked
        assert caught.value.reason == "RequestIdReused"
    assert len(here.leadership.state.jobs) == 4


@pytest.mark.parametrize(("tasks", "is_beside"), [(10, False), (2000, True)])
async def test_failed_tasks_of_a_long_array_are_looked_for_beside_the_loop(
    here: Coordinator, ada: AsyncClient, monkeypatch: pytest.MonkeyPatch, tasks: int, is_beside: bool
):
    looked: list[int] = []

    def noted(*asked: Any) -> Any:
        looked.append(threading.get_ident())
        return failed_again(*asked)

    monkeypatch.setattr(retries, "failed_again", noted)
    first = (await ada.submit(command=["true"], array=f"1-{tasks}")).batch_id
    await ended(here, ada, first, (3, 7))
    retry = (await ada.retry(first)).batch_id
    assert here.leadership.state.jobs[retry].job.tasks == 2
    assert [each != threading.get_ident() for each in looked] == [is_beside]


async def test_a_request_id_of_a_workflow_answers_for_no_job(here: Coordinator, ada: AsyncClient):
    first = (await ada.submit(command=["true"], array="1-3")).batch_id
    await ended(here, ada, first, (2,))
    spec = JobSpec([GroupSpec(command=["true"])])
    flow = WorkflowSpec([StageSpec("a", spec)])
    made = await ada.submit_workflow(WorkflowRequest(flow, request_id="flow"))
    assert (await ada.submit_workflow(WorkflowRequest(flow, request_id="flow"))).id == made.id
    jobs = len(here.leadership.state.jobs)
    wrong: list[Awaitable[Any]] = [
        ada.submit(command=["true"], request_id="flow"),
        ada._ask(calls.submit(SubmitRequest(["x"], rows="gone", request_id="flow"), {})),
        ada.apply(ApplyRequest([spec], request_id="flow")),
        ada.retry(first, request_id="flow"),
        ada.resubmit(first, {"cores": 2}, request_id="flow"),
    ]
    for asked in wrong:
        with pytest.raises(Conflict) as caught:
            await asked
        assert caught.value.reason == "RequestIdReused"
    assert len(here.leadership.state.jobs) == jobs


async def test_a_request_id_answers_for_its_own_request_when_that_has_left_memory(
    here: Coordinator, ada: AsyncClient
):
    first = (await ada.submit(command=["true"], array="1-3", request_id="submit")).batch_id
    await ended(here, ada, first, (2,))
    await forgotten(here, first)
    assert (await ada.submit(command=["true"], array="1-3", request_id="submit")).batch_id == first
    with pytest.raises(Conflict) as caught:
        await ada.submit(command=["false"], array="1-3", request_id="submit")
    assert caught.value.reason == "RequestIdReused"


async def test_why_of_a_failed_sweep_counts_its_failures_and_has_the_parameters_of_the_first(
    here: Coordinator, ada: AsyncClient
):
    made = await ada.submit(command=["t", "{lr}"], params={"lr": "0.1,0.2,0.3", "seed": "7"})
    await ended(here, ada, made.id, (2, 3))
    reply = await ada.why(made.id)
    assert (reply.dominant.code, "1.2: " in reply.dominant.text) == ("EndedFailed", True)
    assert reply.dominant.text.endswith("(lr=0.2, seed=7)")
    (others,) = [each for each in reply.others if each.code == "TasksFailed"]
    assert (others.numbers["count"], "phalanx results 1 --status failed" in others.text) == (2, True)
    assert not [each for each in reply.others if each.code == "Retried"]
    await ada.retry(made.id)
    (others,) = [each for each in (await ada.why(made.id)).others if each.code == "Retried"]
    assert others.text == (
        "Its failed tasks ran again, last in 2; `phalanx results 1` has the newest outcome of each"
    )
    async with client_of(here, "bob") as bob:  # who sees no parameters of it elsewhere
        assert "lr=" not in (await bob.why(made.id)).dominant.text


async def test_other_parameters_of_a_retry_are_refused_with_the_number_of_the_whole_sweep(
    here: Coordinator, ada: AsyncClient
):
    first = await ada.submit(command=["t", "{lr}"], params={"lr": "0.1,0.2,0.3"})
    await ended(here, ada, first.id, (2,))
    again = await ada.retry(first.id)
    with pytest.raises(BadRequest, match=r"1 of 3 tasks .* resubmit 1, whose tasks"):
        await ada.resubmit(again.batch_id, {"param.lr": "0.5"})


async def test_one_task_of_an_array_is_submitted_once_more_with_its_index_and_parameters(
    here: Coordinator, ada: AsyncClient
):
    first = await ada.submit(command=["t", "{lr}"], params={"lr": "0.1,0.2,0.3"})
    reply = await ada.resubmit(f"{first.batch_id}.2", {"memory": "2GiB"}, request_id="r")
    assert (await ada.resubmit(f"{first.batch_id}.2", {"memory": "2GiB"}, request_id="r")).replayed
    again = await ada.job(reply.batch_id)
    assert (again.tasks, again.array, again.request.memory_bytes) == (1, "2", 2 << 30)
    assert (await ada.task(f"{reply.batch_id}.2")).params == {"lr": "0.2"}
    with pytest.raises(Conflict) as taken:
        await ada.resubmit(first.batch_id, {"memory": "2GiB"}, request_id="r")
    assert taken.value.reason == "RequestIdReused"


async def test_a_member_of_a_gang_is_not_submitted_once_more_alone(here: Coordinator, ada: AsyncClient):
    gang = await ada.submit(command=["t"], tasks=2)
    with pytest.raises(Conflict) as refused:
        await ada.resubmit(f"{gang.batch_id}.1")
    assert refused.value.reason == "NotDivisible"
    assert refused.value.hint == "phalanx resubmit 1"
