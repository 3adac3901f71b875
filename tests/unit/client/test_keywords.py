"""Keyword arguments that a function does not have: what the error names."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import phalanx
from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.submission import AcceptedTask, SubmitReply
from phalanx.client import calls
from phalanx.client.executor import _ARGUMENTS
from phalanx.client.executor_jobs import CallFields
from phalanx.client.keywords import check_keywords
from phalanx.client.submit_names import read_keywords

CLIENT = phalanx.Client("http://127.0.0.1:9", "phx_x")  # nothing listens there, and nothing is sent


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("gpu", ["gpu_type", "gpus", "cores"], "gpus"),
        ("cpus", ["gpus", "cores"], "cores"),
        ("workers", ["cores", "max_workers"], "max_workers"),
        ("num_cpus", ["gpus", "cores"], "cores"),
        ("time", ["image", "time_limit"], "time_limit"),
        ("max_atempts", ["max_attempts", "max_retries"], "max_attempts"),
    ],
)
def test_the_name_that_is_meant_is_told(name: str, known: list[str], meant: str):
    with pytest.raises(TypeError, match=rf"^f\(\) has no argument '{name}', did you mean '{meant}'\?$"):
        check_keywords("f", [name], known)


def test_every_wrong_name_is_told_and_what_there_is_if_one_is_like_none():
    with pytest.raises(TypeError) as caught:
        check_keywords("f", ["gpu", "cores", "zebra"], ["gpus", "cores"])
    assert str(caught.value) == (
        "f() has no argument 'gpu', did you mean 'gpus'?; no argument 'zebra' (it has gpus, cores)"
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: CLIENT.submit(command=["true"], gpu=1), r"submit\(\) .*'gpus'\?"),  # type: ignore[call-arg]
        (lambda: CLIENT.submit(command=["true"], limit=4), r"submit\(\) .*'limit': at_once=4 runs 4 tasks"),  # type: ignore[call-arg]
        (lambda: CLIENT.submit(rows=[1], from_csv="x"), r"^rows and from_csv: give one of them$"),
        (lambda: CLIENT.gang(["true"], 2, gpu=1), r"gang\(\) .*'gpus'\?"),  # type: ignore[call-arg]
        (lambda: CLIENT.update(1, prio=1), r"update\(\) .*'priority'\?"),  # type: ignore[call-arg]
        (lambda: CLIENT.create_vps(gpu=1), r"create_vps\(\) .*'gpus'\?"),  # type: ignore[call-arg]
        (lambda: phalanx.Executor(CLIENT, workers=2), r"Executor\(\) .*'max_workers'\?"),  # type: ignore[call-arg]
        (lambda: phalanx.Executor(CLIENT, time_limit=2), r"'time_limit': a call has no limit"),  # type: ignore[call-arg]
        (lambda: phalanx.Executor(CLIENT).with_resources(gpu=1), r"with_resources\(\) .*'gpus'\?"),  # type: ignore[call-arg]
        (
            lambda: phalanx.Executor(CLIENT).with_resources(max_workers=1),  # type: ignore[call-arg]
            r"'max_workers': it is the same for all calls, give it to Executor\(\)",
        ),
    ],
)
def test_a_function_names_itself_and_what_is_meant(call: Any, told: str):
    with pytest.raises(TypeError, match=told):
        call()


def test_an_executor_shows_what_it_was_given_and_takes_only_clients():
    executor = phalanx.Executor(CLIENT, max_workers=2, gpus=1, memory=None)  # type: ignore[arg-type]
    assert repr(executor) == "Executor(max_workers=2, gpus=1)"
    assert repr(executor.with_resources(gpus=2)) == "Executor(max_workers=2, gpus=2)"
    assert repr(CLIENT) == "Client(http://127.0.0.1:9)"
    with pytest.raises(TypeError, match=r"is not a phalanx\.Client"):
        phalanx.Executor("http://127.0.0.1:9")  # type: ignore[arg-type]


def test_the_names_that_an_executor_knows_are_its_arguments():
    written = set(inspect.signature(phalanx.Executor).parameters) - {"client", "resources"}
    assert {*_ARGUMENTS} == written | set(CallFields.__annotations__)


def test_one_value_needs_no_list():
    fields = read_keywords({"gather": "rack", "nodes": "n1", "target": "n1", "name": 12})
    assert fields == {"gather": [GatherSpec("rack")], "nodes": ["n1"], "targets": ["n1"], "name": "12"}


def test_jobs_that_come_first_are_handles_numbers_or_texts():
    both = SubmitReply(["a1", "a2"], "a1", [AcceptedTask("a1"), AcceptedTask("a2")])
    assert read_keywords({"after": both}) == {"after": ["a1", "a2"]}
    assert read_keywords({"after": 17}) == {"after": ["17"]}
    assert read_keywords({"after": ["17:any", 18, both]}) == {"after": ["17:any", "18", "a1", "a2"]}


def test_the_command_of_a_gang_is_no_list_of_letters():
    body = calls.gang("python train.py", 2, (), {}).body or b""
    assert b'"command":"python train.py"' in body
