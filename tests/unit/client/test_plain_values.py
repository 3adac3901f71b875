"""Values that Python programs have at hand: as what they are sent, and which are refused with their field."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.api.schema.params import rows_of_objects
from phalanx.api.schema.submission import AcceptedTask, SubmitReply, SubmitRequest
from phalanx.client import calls
from phalanx.client.ids import id_of
from phalanx.client.submit_names import read_keywords
from phalanx.client.sweeps import resubmit
from phalanx.errors import BadRequest, NotFound
from tests.support.fake_client import ID, a_job, a_task


@pytest.mark.parametrize(
    ("field", "given", "sent"),
    [
        (
            "command",
            ["python", Path("/a.py"), 1, 0.5, np.float64(0.25)],
            ["python", "/a.py", "1", "0.5", "0.25"],
        ),
        ("command", "python a.py", "python a.py"),
        ("command", ["true", True], ["true", True]),
        ("env", {"SEED": 1, "HOME": Path("/root")}, {"SEED": "1", "HOME": "/root"}),
        ("tags", {"try": 3}, {"try": "3"}),
        ("cwd", Path("/tmp"), "/tmp"),
        ("mounts", "/data", ["/data"]),
        ("array", range(0, 10, 3), "0-9:3"),
        ("time_limit", timedelta(minutes=5), 300.0),
        ("begin", datetime(2027, 1, 1, tzinfo=UTC), 1798761600.0),
        ("params", {"seed": range(1, 3), "lr": np.array([0.5, 1])}, {"seed": [1, 2], "lr": [0.5, 1.0]}),
        ("params", {"lr": "0.1,0.2", "n": np.int64(3)}, {"lr": "0.1,0.2", "n": 3}),
    ],
)
def test_values_are_sent_as_what_they_mean(field: str, given: Any, sent: Any):
    assert read_keywords({field: given}) == {field: sent}


def test_none_is_as_if_it_were_not_given():
    assert read_keywords({"env": None, "memory": None, "command": ["true"]}) == {"command": ["true"]}


def test_what_json_does_not_have_is_told_with_its_field():
    with pytest.raises(TypeError, match=r"env = .*object.* cannot be sent"):
        calls.submit(SubmitRequest(["true"], env={"A": object()}), {"export": "NONE"})  # type: ignore[dict-item]


def test_rows_may_have_numbers_of_numpy():
    rows = [{"lr": np.float64(0.5), "n": np.int64(2)}]
    assert rows_of_objects(rows, "rows") == (["lr", "n"], [["0.5", "2"]])
    with pytest.raises(BadRequest, match=r"rows: row 1: .* is not a value that JSON has"):
        rows_of_objects([{"lr": object()}], "rows")


def test_what_knows_its_id_stands_for_it():
    reply = SubmitReply([ID], ID, [AcceptedTask(ID)])

    class Handle(SubmitReply):
        @property
        def id(self) -> str:
            return self.batch_id

    handle = Handle(reply.task_ids, reply.batch_id, reply.accepted)
    assert [id_of(each) for each in (17, "17", a_job(), a_task("a.1"), handle)] == ["17", "17", ID, "a.1", ID]
    assert calls.cancel(a_task(f"{ID}.1")).path == f"/v1/tasks/{ID}.1/cancel"
    assert calls.job(a_job()).path == f"/v1/jobs/{ID}"


def test_what_stands_for_nothing_or_for_several_jobs_is_refused():
    wrong: Any = NotFound("x")
    with pytest.raises(TypeError, match="is not a job, task or workflow"):
        calls.job(wrong)
    both: Any = SubmitReply(["a", "b"], "a", [AcceptedTask("a"), AcceptedTask("b")])
    with pytest.raises(TypeError, match="is 2 jobs, one for each target: give one of its job_ids"):
        calls.cancel(both)


def test_changes_of_a_job_may_be_written_as_fields_of_a_submission():
    given = {
        "gpus": 2,
        "retries": 1,
        "env": {"SEED": 7},
        "params": {"lr": [0.5]},
        "time_limit": timedelta(hours=1),
    }
    sent = json.loads(resubmit(17, {**given, "env.A": "b"}, "r").body or b"")
    assert sent["set"] == {
        "gpus": 2,
        "max_retries": 1,
        "env.SEED": "7",
        "param.lr": [0.5],
        "time_limit": 3600.0,
        "env.A": "b",
    }
