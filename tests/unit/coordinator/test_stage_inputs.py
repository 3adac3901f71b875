"""Values for stages, fetched beside the loop: asked again while the place is away, given up where that cannot help."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from phalanx.coordinator.attempt_files import AttemptFiles
from phalanx.coordinator.files import FileStore
from phalanx.coordinator.requests import Requests
from phalanx.coordinator.stage_inputs import StageInputFetcher
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.inputs import GiveInputs, Input
from phalanx.core.cluster.stage_inputs import FetchInputs, NeededResult, StageNeeds
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.model.files import ARTIFACTS_LATE, MANIFEST_PATH, RESULT_PATH, Artifact, FileKey, Manifest
from phalanx.core.model.orders import Ended, Exit, Started, Why
from phalanx.core.model.reason import Reason, Tier
from phalanx.errors import NotActive, TooMany
from phalanx.store.memory import MemoryStore
from tests.support.clocks import ManualClock
from tests.support.workflow_cluster import WorkflowCluster

JOB, UPSTREAM = "0" * 25 + "2", "0" * 25 + "1"
BODY = b'{"n": 1}'


class Core:
    """What the loop answers: one of `answers` for each input, then yes."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.given: list[GiveInputs] = []
        self.asked = asyncio.Event()
        self.clock = ManualClock(200.0)
        self.state = ClusterState(Timers())

    def require_active(self) -> None:
        pass

    async def ready(self) -> None:
        pass

    async def require_leader(self) -> None:
        pass

    async def ask(self, inputs: list[Input]) -> list[Answer | None]:
        [one] = inputs
        assert isinstance(one, GiveInputs)
        self.given.append(one)
        self.asked.set()
        answer = self.answers.pop(0) if self.answers else Accepted()
        if isinstance(answer, Exception):
            raise answer
        return [answer]


def a_need(digest: str = hashlib.sha256(BODY).hexdigest()) -> FetchInputs:
    needed = NeededResult(0, 0, (UPSTREAM, 0, 1), len(BODY), digest)
    return FetchInputs("0" * 26, 1, JOB, StageNeeds((needed,)))


def a_turn(asked: FetchInputs) -> Turn:
    return Turn([], [asked], [], [], 1)


def run(
    folder: Path, core: Core, act: Callable[[StageInputFetcher, FileStore], Awaitable[None]]
) -> list[GiveInputs]:
    async def main() -> list[GiveInputs]:
        files = FileStore.folder(folder)
        await files.put(FileKey((UPSTREAM, 0, 1), "result", RESULT_PATH).name, BODY)
        requests = cast(Requests, core)
        fetcher = StageInputFetcher(
            AttemptFiles(requests, MemoryStore(), files, core.clock), requests, pause_s=0.01
        )
        await act(fetcher, files)
        async with asyncio.timeout(10):
            await fetcher.until_idle()
        return core.given

    return asyncio.run(main())


def test_a_result_is_fetched_once_for_one_stage(tmp_path: Path):
    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(a_need()))

    [given] = run(tmp_path, Core(), act)
    assert given.results == {(0, 0): BODY.decode()}
    assert (given.job, given.trouble) == (JOB, "")


def test_a_changed_file_is_final_and_nothing_of_it_is_given(tmp_path: Path):
    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(a_need("ab" * 32)))

    [given] = run(tmp_path, Core(), act)
    assert given.is_final
    assert given.results == {}
    assert "is not what the task wrote" in given.trouble


def test_a_file_that_is_gone_is_final(tmp_path: Path):
    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        await files.delete([FileKey((UPSTREAM, 0, 1), "result", RESULT_PATH).name])
        fetcher.note(a_turn(a_need()))

    [given] = run(tmp_path, Core(), act)
    assert given.is_final
    assert "is not in the place for files" in given.trouble


def test_a_full_mailbox_is_no_reason_to_give_up_and_the_end_of_the_term_is(tmp_path: Path):
    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(a_need()))

    full = TooMany("the mailbox is full", reason="MailboxFull")
    assert len(run(tmp_path, Core(full, full), act)) == 3
    assert len(run(tmp_path, Core(NotActive("a standby")), act)) == 1


def test_values_that_the_log_cannot_hold_end_the_stage(tmp_path: Path):
    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(a_need()))

    no = Refused(Reason("CannotBeWritten", Tier.NEVER, "a value cannot be written down"), "bad")
    given = run(tmp_path, Core(no), act)
    assert [each.is_final for each in given] == [False, True]
    assert given[1].trouble == "a value cannot be written down"


def test_what_is_asked_for_again_meanwhile_is_fetched_again(tmp_path: Path):
    """The state was read back: the first answer is a refusal, and the stage waits anew."""
    stale = Refused(Reason("NotAwaited", Tier.NEVER, "waits for nothing"), "stale")
    core = Core(stale)

    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(a_need()))
        fetcher.note(a_turn(a_need()))

    assert len(run(tmp_path, core, act)) == 2


def test_nothing_is_given_after_the_term(tmp_path: Path):
    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(a_need()))
        fetcher.stop()

    assert run(tmp_path, Core(), act) == []


LATE = """
apiVersion: flowmesh/v1
spec:
  graph:
    nodes:
      - {name: a, spec: {command: [make, a]}}
      - {name: b, dependsOn: [a], spec: {command: [cp, "WORD"]}}
"""


class LateCore(Core):
    """Of a cluster whose stage `a` has ended and whose artifacts did not come before its end."""

    def __init__(self, word: str = "${a.artifacts.model.pt}") -> None:
        super().__init__()
        self.cluster = WorkflowCluster(LATE.replace("WORD", word))
        self.state = self.cluster.state
        key = (self.cluster.job_of("a"), 0, 1)
        self.cluster.tell("n1", Started(key, self.cluster.now))
        message = f"killed by nobody; {ARTIFACTS_LATE}"
        exit = Exit(Why.NONE, 0, self.cluster.now, self.cluster.now, message)
        self.cluster.tell("n1", Ended(key, exit))
        [self.wanted] = [each for each in self.cluster.turns[-1].effects if isinstance(each, FetchInputs)]
        self.manifest = FileKey(key, "manifest", MANIFEST_PATH).name


@pytest.mark.parametrize("word", ["${a.artifacts.model.pt}", "${a.artifacts}"])
def test_artifacts_that_are_on_their_way_are_waited_for(tmp_path: Path, word: str):
    core = LateCore(word)

    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(core.wanted))
        await core.asked.wait()
        assert (core.given[0].is_final, "has not sent the artifacts" in core.given[0].trouble) == (
            False,
            True,
        )
        await files.put(core.manifest, msgspec.json.encode(Manifest((Artifact("model.pt", 1, "ab" * 32),))))

    given = run(tmp_path, core, act)
    assert (given[-1].trouble, len(given) > 1) == ("", True)


def test_a_list_that_says_why_they_were_left_out_ends_the_wait(tmp_path: Path):
    core = LateCore()

    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        await files.put(core.manifest, msgspec.json.encode(Manifest((), ("model.pt: too large",), 1)))
        fetcher.note(a_turn(core.wanted))

    [given] = run(tmp_path, core, act)
    assert given.is_final and given.trouble.endswith("1 were left out, such as model.pt: too large")


@pytest.mark.parametrize("lost", ["the node is removed", "a day has passed"])
def test_artifacts_that_will_never_come_end_the_wait(tmp_path: Path, lost: str):
    core = LateCore()
    if lost == "a day has passed":
        core.clock.at += 86_400.0
    else:
        del core.state.nodes["n1"]

    async def act(fetcher: StageInputFetcher, files: FileStore) -> None:
        fetcher.note(a_turn(core.wanted))

    [given] = run(tmp_path, core, act)
    assert given.is_final and "has left no artifact 'model.pt'" in given.trouble
