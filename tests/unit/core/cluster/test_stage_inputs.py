"""References to what is in the place for files: large results and artifacts, asked for before a stage begins."""

from __future__ import annotations

import pytest

from phalanx.coordinator.turn import Engine
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.events import VOLATILE, decode
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import GiveInputs, Tick
from phalanx.core.cluster.stage_inputs import INPUT_BYTES_MAX, FetchInputs
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.orders import Ended, Exit, Started, Why
from phalanx.errors import PhalanxError
from tests.support.workflow_cluster import WorkflowCluster

LARGE = """
apiVersion: flowmesh/v1
spec:
  graph:
    nodes:
      - {name: a, spec: {command: [make, a]}}
      - {name: b, dependsOn: [a], spec: {command: [make, "${a.result.name}"], max_attempts: 3}}
      - {name: c, dependsOn: [b], spec: {command: [make, c]}}
      - {name: d, dependsOn: [a], spec: {command: [make, d]}}
"""
FILES = """
apiVersion: flowmesh/v1
spec:
  graph:
    nodes:
      - {name: a, spec: {command: [make, a]}}
      - {name: b, dependsOn: [a], spec: {command: [cp, "${a.artifacts.model/v1.2.pt}", "${a.artifacts}"]}}
"""
MANY = """
apiVersion: flowmesh/v1
spec:
  graph:
    nodes:
      - {name: a, spec: {command: [make, a], array: 0-2}}
      - {name: b, spec: {command: [make, WORD]}}
"""


class FilesCluster(WorkflowCluster):
    """One whose tasks may leave results in the place for files."""

    def finish_large(self, stage: str, size: int = 9000, position: int = 0, digest: str = "ab") -> None:
        key = (self.job_of(stage), position, self.state.jobs[self.job_of(stage)].attempts[position])
        self.tell("n1", Started(key, self.now))
        exit = Exit(Why.NONE, 0, self.now, self.now, result_bytes=size, result_sha256=digest * 32)
        self.tell("n1", Ended(key, exit))

    def asked(self) -> list[FetchInputs]:
        """What the last turn asked the shell for."""
        return [effect for effect in self.turns[-1].effects if isinstance(effect, FetchInputs)]

    def give_values(self, asked: FetchInputs, text: str) -> object:
        results = {(each.stage, each.position): text for each in asked.needs.results}
        return self.give(GiveInputs(asked.workflow, asked.stage, asked.job, results))[0]

    def give_trouble(self, asked: FetchInputs, text: str, *, is_final: bool) -> object:
        return self.give(GiveInputs(asked.workflow, asked.stage, asked.job, trouble=text, is_final=is_final))[
            0
        ]


def test_a_stage_begins_with_a_large_result_once_it_was_fetched():
    cluster = FilesCluster(LARGE)
    cluster.finish_large("a")
    [asked] = cluster.asked()
    [needed] = asked.needs.results
    assert needed.attempt == (cluster.job_of("a"), 0, 1)
    assert (needed.size, needed.sha256) == (9000, "ab" * 32)
    assert cluster.begun() == {"a", "d"}  # what refers to nothing does not wait
    assert cluster.state.due == {}
    cluster.give(Tick())
    assert cluster.asked() == []  # it is asked for once
    assert isinstance(cluster.give_values(asked, '{"name": "x"}'), Accepted)
    assert cluster.command("b").argv == ("make", "x")
    assert cluster.state.jobs[cluster.job_of("b")].attempts[0] == 1
    assert isinstance(cluster.give_values(asked, '{"name": "y"}'), Refused)  # never twice
    assert cluster.command("b").argv == ("make", "x")


def test_values_that_are_not_in_what_was_fetched_fail_the_stage_and_what_builds_on_it():
    cluster = FilesCluster(LARGE)
    cluster.finish_large("a")
    cluster.give_values(cluster.asked()[0], '{"other": 1}')
    assert cluster.statuses() == {"a": "Completed", "b": "Failed", "c": "Failed", "d": "Assigned"}
    assert "the result has no value at name" in cluster.ends()["b"].text


def test_a_file_that_is_gone_fails_the_stage_without_a_try():
    cluster = FilesCluster(LARGE)
    cluster.finish_large("a")
    [asked] = cluster.asked()
    cluster.give_trouble(asked, "the place does not answer", is_final=False)
    assert cluster.flow.awaited == {1: "the place does not answer"}
    assert cluster.begun() == {"a", "d"}
    cluster.give_trouble(asked, "it is not in the place for files", is_final=True)
    assert cluster.ends()["b"].text == "it is not in the place for files"
    assert cluster.begun() == {"a", "d"}
    assert cluster.flow.awaited == {}
    assert isinstance(cluster.give_values(asked, '{"name": "x"}'), Refused)


def test_who_takes_over_asks_again_from_the_log_or_an_image():
    cluster = FilesCluster(LARGE)
    cluster.finish_large("a")
    [asked] = cluster.asked()
    replayed = ClusterState(Timers())
    for turn in cluster.turns:
        batch = turn.batch()
        for event in decode(batch.body) if batch else []:
            assert type(event) not in VOLATILE
            apply(replayed, event)
    image = decode_state(encode_state(cluster.state), Timers())
    for state in (replayed, image):
        turn = Engine(state).turn(
            [GiveInputs(asked.workflow, 1, asked.job, {(0, 0): '{"name": "early"}'})], 101
        )
        assert isinstance(turn.answers[0], Refused)  # of the coordinator before it
        assert [each for each in turn.effects if isinstance(each, FetchInputs)] == [asked]
        given = GiveInputs(asked.workflow, 1, asked.job, {(0, 0): '{"name": "x"}'})
        assert isinstance(Engine(state).turn([given], 102).answers[0], Accepted)


def test_what_was_fetched_for_an_earlier_retry_or_a_cancelled_stage_comes_too_late():
    cluster = FilesCluster(LARGE)
    cluster.finish_large("a")
    [asked] = cluster.asked()
    cluster.cancel()
    assert isinstance(cluster.give_values(asked, '{"name": "x"}'), Refused)
    assert cluster.statuses()["b"] == "Cancelled"
    cluster.finish("d")
    cluster.retry("b")
    [again] = cluster.asked()
    assert again.job != asked.job
    assert isinstance(cluster.give_values(asked, '{"name": "old"}'), Refused)
    cluster.give_values(again, '{"name": "new"}')
    assert cluster.command("b").argv == ("make", "new")


def test_a_condition_on_a_large_result_waits_for_it():
    text = LARGE.replace(
        "command: [make, c]", 'command: [make, c], condition: {node: b, field: ok, equals: "true"}'
    )
    cluster = FilesCluster(text)
    cluster.finish("a", result='{"name": "x"}')
    cluster.finish_large("b")
    assert cluster.statuses()["c"] == "Waiting"
    cluster.give_values(cluster.asked()[0], '{"ok": true}')
    assert cluster.begun() == {"a", "b", "c", "d"}


def test_artifacts_are_named_as_cp_takes_them_once_they_are_known_to_be_there():
    cluster = FilesCluster(FILES)
    cluster.finish("a")
    [asked] = cluster.asked()
    job = cluster.job_of("a")
    needed = [(each.task_id, each.path) for each in asked.needs.artifacts]
    assert needed == [(job, "model/v1.2.pt"), (job, "")]
    cluster.give_values(asked, "")
    assert cluster.command("b").argv == ("cp", f"{job}:model/v1.2.pt", f"{job}:")


@pytest.mark.parametrize(
    ("word", "positions", "given"),
    [
        ('"${a.result.1.n}"', [1], "7"),
        ('"${a.result}"', [0, 1], '[{"n":7},{"n":7},{"n":3}]'),
    ],
)
def test_of_several_tasks_only_the_results_that_are_referred_to_are_fetched(
    word: str, positions: list[int], given: str
):
    cluster = FilesCluster(MANY.replace("WORD", word))
    cluster.finish_large("a")
    cluster.finish_large("a", position=1)
    key = (cluster.job_of("a"), 2, 1)
    cluster.tell("n1", Started(key, cluster.now))
    cluster.tell("n1", Ended(key, Exit(Why.NONE, 0, cluster.now, cluster.now, result='{"n": 3}')))
    [asked] = cluster.asked()
    assert [each.position for each in asked.needs.results] == positions
    cluster.give_values(asked, '{"n": 7}')
    assert cluster.command("b").argv == ("make", given)


@pytest.mark.parametrize("word", ["${a.artifacts.x.pt}", "${a.artifacts.9.x.pt}", "${a.artifacts.0.../x}"])
def test_of_several_tasks_an_artifact_needs_an_index_which_is_seen_at_submit(word: str):
    with pytest.raises(PhalanxError, match=r"is not an index of one|none of them") as refused:
        FilesCluster(MANY.replace("WORD", f'"{word}"'))
    assert refused.value.reason == "BadReference"


def test_an_artifact_of_one_of_several_tasks():
    cluster = FilesCluster(MANY.replace("WORD", '"${a.artifacts.2.x.pt}"'))
    for position in range(3):
        cluster.finish_large("a", position=position)
    cluster.give_values(cluster.asked()[0], "")
    assert cluster.command("b").argv == ("make", f"{cluster.job_of('a')}.2:x.pt")


FROM_FIVE = MANY.replace("array: 0-2", "array: 5-9:2")


@pytest.mark.parametrize(("word", "given"), [("5", '{"n": 0}'), ("9.n", "2"), ("7.n", "1")])
@pytest.mark.parametrize("are_large", [False, True])
def test_of_an_array_a_result_is_named_by_the_index_of_its_task(word: str, given: str, are_large: bool):
    cluster = FilesCluster(FROM_FIVE.replace("WORD", f'"${{a.result.{word}}}"'))
    for position in range(3):
        if are_large:
            cluster.finish_large("a", position=position)
            continue
        key = (cluster.job_of("a"), position, 1)
        cluster.tell("n1", Started(key, cluster.now))
        exit = Exit(Why.NONE, 0, cluster.now, cluster.now, result=f'{{"n": {position}}}')
        cluster.tell("n1", Ended(key, exit))
    if are_large:
        [asked] = cluster.asked()
        [needed] = asked.needs.results
        assert cluster.flow.workflow.stages[0].job.task_id(needed.position).endswith(f".{word[0]}")
        cluster.give_values(asked, f'{{"n": {needed.position}}}')
    assert cluster.command("b").argv[1].replace(" ", "") == given.replace(" ", "")


@pytest.mark.parametrize("word", ["${a.result.0}", "${a.result.6.n}", "${a.result.n}", "${a.n}"])
def test_of_an_array_an_index_that_no_task_has_is_refused_at_submit(word: str):
    with pytest.raises(
        PhalanxError, match=r"3 tasks, 5-9:2, and '.' is not an index of one: write"
    ) as refused:
        FilesCluster(FROM_FIVE.replace("WORD", f'"{word}"'))
    assert refused.value.reason == "BadReference"


@pytest.mark.parametrize(("field", "status"), [("5.n", "Assigned"), ("7.n", "Skipped")])
def test_a_condition_names_a_task_by_its_index(field: str, status: str):
    text = FROM_FIVE.replace("[make, WORD]", f"[make], condition: {{node: a, field: {field}, equals: '0'}}")
    cluster = FilesCluster(text.replace("{name: b,", "{name: b, dependsOn: [a],"))
    for position in range(3):
        key = (cluster.job_of("a"), position, 1)
        cluster.tell("n1", Started(key, cluster.now))
        exit = Exit(Why.NONE, 0, cluster.now, cluster.now, result=f'{{"n": {position}}}')
        cluster.tell("n1", Ended(key, exit))
    assert cluster.statuses()["b"] == status


def test_a_list_in_the_result_of_one_task_is_counted_from_0():
    cluster = FilesCluster(LARGE.replace("${a.result.name}", "${a.result.0}"))
    cluster.finish("a", '["first", "second"]')
    assert cluster.command("b").argv == ("make", "first")


def test_too_much_for_one_stage_is_refused_before_it_is_fetched():
    cluster = FilesCluster(LARGE)
    cluster.finish_large("a", size=INPUT_BYTES_MAX + 1)
    assert cluster.asked() == []
    assert f"at most {INPUT_BYTES_MAX} are allowed" in cluster.ends()["b"].text
