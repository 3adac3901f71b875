"""The commands of a transcript that are about workflows.

workflow flow a b:a c:a,b!a.n d:c?c.ok=yes    stages after a colon; ! uses a value, ? is a condition
stages flow        result flow:a#1 '{"n": 4}'     large flow:a#1 9000
give flow:c '{"n": 4}'    lose-file flow:c it is gone    retry flow b    cancel-workflow flow
"""

from __future__ import annotations

import re

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.workflows import (
    ConditionSpec,
    RetryRequest,
    StageSpec,
    StageView,
    WorkflowRequest,
    WorkflowSpec,
)
from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.inputs import GiveInputs
from phalanx.core.cluster.stage_inputs import FetchInputs
from phalanx.core.model.orders import AttemptKey
from tests.support.fake_keeper import FakeKeeper
from tests.transcripts.scripted_cluster import ScriptedCluster, finish

STAGE = re.compile(r"([a-z]+)(?::([a-z,]+))?(?:!([a-z.]+))?(?:\?([a-z]+)\.([a-z]+)=(\w+))?")


class WorkflowScript:
    """What a script does with workflows."""

    cluster: ScriptedCluster

    def do_workflow(self, name: str, *words: str) -> None:
        request = WorkflowRequest(WorkflowSpec([_stage(word) for word in words], name))
        reply = finish(self.cluster.commands.submit_workflow(request, "ann"))
        self.cluster.lines.insert(0, f"accepted {self.cluster.named(reply.id)}")

    def do_stages(self, name: str) -> None:
        for stage in finish(self.cluster.commands.workflow(self.cluster.id_of(name))).stages:
            self.cluster.lines.append(self.cluster.named(_told(stage)))

    def do_result(self, attempt: str, text: str, code: str = "0") -> None:
        """An attempt ends and has given a result."""
        key = self.cluster.key_of(attempt)
        self._keeper(key).end(key, self.cluster.now_s, int(code), result=text)

    def do_large(self, attempt: str, size: str) -> None:
        """An attempt ends, and its result is in the place for files."""
        key = self.cluster.key_of(attempt)
        self._keeper(key).end(key, self.cluster.now_s, 0, result_bytes=int(size), result_sha256="ab" * 32)

    def do_give(self, stage: str, text: str) -> None:
        """What a stage waits for was fetched."""
        asked = self._asked(stage)
        results = {(each.stage, each.position): text for each in asked.needs.results}
        self._given(GiveInputs(asked.workflow, asked.stage, asked.job, results))

    def do_lose_file(self, stage: str, *words: str) -> None:
        """What a stage waits for cannot be had any more."""
        asked = self._asked(stage)
        text = " ".join(words)
        self._given(GiveInputs(asked.workflow, asked.stage, asked.job, trouble=text, is_final=True))

    def do_retry(self, name: str, stage: str | None = None) -> None:
        request = RetryRequest(stage)
        reply = finish(self.cluster.commands.retry_workflow(self.cluster.id_of(name), request))
        self.cluster.lines.insert(0, f"again: {', '.join(reply.jobs)}")

    def do_cancel_workflow(self, name: str) -> None:
        reply = finish(self.cluster.commands.cancel_workflow(self.cluster.id_of(name)))
        self.cluster.lines.insert(0, f"cancelled {reply.cancelled}, {reply.stopping} still to be stopped")

    def _asked(self, stage: str) -> FetchInputs:
        return self.cluster.fetches[self.cluster.id_of(stage)]

    def _given(self, given: GiveInputs) -> None:
        answer = self.cluster.turn([given])[0]
        if isinstance(answer, Refused):
            self.cluster.lines.append(f"refused: {self.cluster.named(answer.reason.text)}")

    def _keeper(self, key: AttemptKey) -> FakeKeeper:
        raise NotImplementedError


def _stage(word: str) -> StageSpec:
    found = STAGE.fullmatch(word)
    assert found is not None, word
    name, after, value, node, field, equals = found.groups()
    uses = [f"${{{value.replace('.', '.result.', 1)}}}"] if value else []
    job = JobSpec([GroupSpec(command=["run", name, *uses])], max_retries=0)
    condition = ConditionSpec(node, field, equals) if node else None
    return StageSpec(name, job, after.split(",") if after else [], condition)


def _told(stage: StageView) -> str:
    return f"{stage.name}: {stage.status}" + (f", {stage.reason}" if stage.reason else "")
