"""Calls as values: the right request for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx.api.schema.apply import ApplyRequest
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.submit_fields import SweepFields
from phalanx.client import calls
from phalanx.errors import BadRequest, NotFound, Unavailable


def test_the_fields_of_a_submission_are_those_of_its_request():
    others = {"export", "each_line", "from_csv", "from_json"}
    assert set(SweepFields.__annotations__) - others == set(SubmitRequest.__struct_fields__)


def test_a_submission_always_carries_a_request_id():
    first, second = [
        msgspec.json.decode(calls.submit(None, {"command": ["a"]}).body or b"", type=SubmitRequest)
        for _ in range(2)
    ]
    assert first.request_id
    assert first.request_id != second.request_id
    given = calls.submit(SubmitRequest(["a"], request_id="mine"), {})
    assert b'"request_id":"mine"' in (given.body or b"")


def test_an_application_always_carries_a_request_id():
    request = ApplyRequest([], request_id="mine")
    assert b'"request_id":"mine"' in (calls.apply(request).body or b"")
    ways: list[Any] = [{"groups": []}, [{"groups": []}], ApplyRequest([])]
    for given in ways:
        assert msgspec.json.decode(calls.apply(given).body or b"", type=ApplyRequest).request_id


def test_a_submission_is_given_in_one_way():
    with pytest.raises(TypeError):
        calls.submit(SubmitRequest(["a"]), {"cores": 2})


@pytest.mark.parametrize(
    ("id", "path"),
    [("01ab", "/v1/jobs/01ab/why"), ("01ab.3", "/v1/tasks/01ab.3/why"), ("a/b?", "/v1/jobs/a%2Fb%3F/why")],
)
def test_an_id_tells_whether_it_is_a_job_or_a_task(id: str, path: str):
    assert calls.why(id).target == path


def test_a_node_is_named_as_such():
    assert calls.story("n1.lab", "nodes", None, 5).target == "/v1/nodes/n1.lab/story?limit=5"


def test_only_questions_without_harm_are_repeated():
    assert calls.job("x").repeatable
    assert calls.wait("x", 1).repeatable
    assert calls.submit(None, {"command": ["a"]}).repeatable
    assert not calls.cancel("x").repeatable
    assert not calls.drain("n1", "dust").repeatable


def test_words_that_were_not_given_are_not_sent():
    assert calls.logs("x", "stderr", None, 0, None, follow=True).query == {
        "stream": "stderr",
        "offset": "0",
        "follow": "true",
        "split": "true",
    }


def test_work_runs_in_the_folder_of_whoever_submits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    sent = [
        calls.submit(None, {"command": ["pwd"]}),
        calls.submit(None, {"command": ["pwd"], "cwd": "/"}),
        calls.gang(["pwd"], 2, [], {}),
    ]
    assert [msgspec.json.decode(each.body or b"")["cwd"] for each in sent] == [
        str(tmp_path),
        "/",
        str(tmp_path),
    ]


def test_an_answer_is_read_or_raised():
    assert calls.ready().read(200, {}, b'{"status": "ok"}') == {"status": "ok"}
    with pytest.raises(NotFound):
        calls.job("x").read(404, {}, b"")
    with pytest.raises(Unavailable, match="not one of phalanx"):
        calls.job("x").read(200, {}, b"<html>")


def test_a_call_does_not_hold_the_token():
    assert "phx_secret" not in repr(calls.job("x"))
    assert calls.job("x").headers_with("phx_secret")["Authorization"] == "Bearer phx_secret"


@pytest.mark.parametrize("name", ["a b", "Lab", "", "a/b"])
def test_a_queue_that_cannot_be_one_is_refused_by_the_rule(name: str):
    for make in (calls.queue, lambda name: calls.set_quota(name, None)):
        with pytest.raises(BadRequest, match=r"queue: .* is not a name: write 1 to 63 lower-case letters"):
            make(name)


@pytest.mark.parametrize("call", [calls.apply, calls.plan])
def test_the_content_of_a_job_file_may_be_a_dict(call: Any):
    given = {"name": 12, "command": ["true"], "gpus": 1, "gather": "rack", "gang": True, "nodes": "n1"}
    sent = json.loads(call(given).body)["specs"]
    assert sent == json.loads(call([given]).body)["specs"]
    assert sent == [
        {
            "name": "12",
            "gather": [{"layer": "rack"}],
            "gang": True,
            "groups": [{"command": ["true"], "gpus": 1, "nodes": ["n1"]}],
        }
    ]


def test_an_unknown_field_of_a_dict_names_the_one_that_was_meant():
    with pytest.raises(BadRequest, match=r"specs\[1\]: unknown field 'comand', did you mean 'command'\?"):
        calls.apply([{"command": ["true"]}, {"comand": ["true"]}])


@pytest.mark.parametrize("call", [calls.apply, calls.plan])
def test_the_name_of_a_file_is_not_its_content(call: Any):
    for given in ("job.yaml", Path("job.yaml")):
        with pytest.raises(TypeError, match="is not the content of a job file"):
            call(given)
