"""Documents: what is refused and with which message, and decoders that many threads use for the first time at once."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from phalanx.api.schema.documents import read_document
from phalanx.api.schema.queries import (
    JobsQuery,
    LogsQuery,
    WaitQuery,
    read_query,
)
from phalanx.api.schema.submission import SubmitRequest
from phalanx.errors import BadRequest

# In a separate process, because it would not fail but crash. New types in every round: each is used once.
SCRIPT = """
import sys, threading
from msgspec import defstruct
from phalanx.client.calls import Call

sys.setswitchinterval(1e-6)
for _ in range(100):
    inner = defstruct("Inner", [(f"f{number}", "int | None", None) for number in range(20)])
    more = [(f"f{number}", "list[int] | None", None) for number in range(20)]
    call = Call(method="GET", path="/", answer=defstruct("Outer", [("inner", inner), *more]))
    together = threading.Barrier(4)

    def ask(call=call, together=together):
        together.wait()
        assert call.read(200, {}, b'{"inner": {"f1": 7}, "f3": [1]}').inner.f1 == 7

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("whole")
"""


def refusal(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read_document(body, SubmitRequest)
    return caught.value


def test_a_document_is_read():
    assert read_document(b'{"command": ["a"], "cores": 2}', SubmitRequest).cores == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{}x",
        b"\xff",
        b'{"command": ["\xff"]}',
        b'{"\xff": 1}',
        b'{"cores": NaN}',
        b'{"time_limit": Infinity}',
        b'{"time_limit": -Infinity}',
        b'{"command": ["\\ud800"]}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_json_is_refused(body: bytes):
    assert refusal(body).reason == "MalformedJson"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"cores": "2"}', "cores: '2' is text, give a number"),
        (b'{"command": [1]}', 'command[0]: 1 is a whole number, give text: "1"'),
        (b'{"env": {"B": "b", "A": null}}', "env['A']: expected text, got null"),
        (b'{"env": {"B": "b", "LR": 0.1}}', "env['LR']: 0.1 is a number, give text: \"0.1\""),
        (b'{"required_gpus": [[0, "x"]]}', "required_gpus[0][1]: 'x' is text, give a whole number"),
        (
            b'{"array": 4}',
            'array: 4 is a whole number, give text: "1-4" for 4 tasks, "4" for the one with this index',
        ),
        (b'{"hold": "no"}', "hold: 'no' is text, give true or false"),
        (b'{"command": [true]}', 'command[0]: true is a truth value, give text: "true"'),
        (b'{"env": "A=1"}', 'env: \'A=1\' is text, give an object such as {"NAME": "value"}'),
        (
            b'{"gather": "rack"}',
            'gather: \'rack\' is text, give a list such as [{"layer": "rack"}] (optional: must, multiple)',
        ),
        (b'{"time_limit": [1]}', "time_limit: expected a number or text, got a list"),
        (b'{"kind": "pod"}', "kind: 'pod' is not one of: command, vps"),
        (b"[]", "the document: expected an object with fields, got a list"),
        (b'{"time_limit": 1e999}', "time_limit: number out of range"),
        (b'{"cores": ' + b"9" * 5000 + b"}", "cores: integer value out of range"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(body: bytes, says: str):
    assert refusal(body).detail == says


def test_an_unknown_field_is_refused_with_the_one_that_was_meant():
    error = refusal(b'{"comand": ["a"]}')
    assert error.detail == "unknown field 'comand', did you mean 'command'?"
    assert "time_limit" in error.hint


def test_an_unknown_field_like_no_other_is_just_refused():
    assert refusal(b'{"zzz": 1}').detail == "unknown field 'zzz'"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_is_refused_at_the_first_bracket_too_many(opening: bytes):
    for field in (b"command", b"env", b"cores", b"unknown"):
        refusal(b'{"' + field + b'": ' + opening * 100_000)


@pytest.mark.parametrize(
    "body",
    [
        b'{"cores": 1, "cores": 2}',
        b'{"cores": 1, "c\\u006fres": 2}',
        b'{"env": {"A": "1", "A": "2"}}',
        b'{"env": {"A": "1", "\\u0041": "2"}}',
        b'{"name" : "x", "name"\n:\t"x"}',
    ],
)
def test_a_repeated_key_is_refused(body: bytes):
    assert refusal(body).reason == "RepeatedKey"


@pytest.mark.parametrize(
    "body",
    [
        b'{"name": "x", "env": {"name": "1", "env": "2"}}',
        b'{"command": ["cores", "cores", ":", "\\"cores\\":"], "cores": 1}',
        b'{"env": {"a\\nb": "1"}}',
    ],
)
def test_the_same_word_elsewhere_is_no_repeated_key(body: bytes):
    read_document(body, SubmitRequest)


def test_a_megabyte_of_anything_is_judged_quickly():
    worst = [
        b'{"command": [' + b'"",' * 349_000 + b'""]}',
        b'{"required_gpus": [' + b"[]," * 349_000 + b"[]]}",
        b'{"env": {' + b",".join(b'"%06d\\n":""' % n for n in range(74_000)) + b"}}",
        b'{"command": ["' + b"\\\\" * 520_000 + b'"]}',
    ]
    for body in worst:
        began = time.process_time()
        read_document(body, SubmitRequest)
        assert time.process_time() - began < 2


def test_a_query_is_read():
    query = read_query(b"status=Running&limit=5&name=a%20b", JobsQuery)
    assert (query.status, query.limit, query.name, query.queue) == ("Running", 5, "a b", None)
    assert read_query(b"follow=true&attempt=2", LogsQuery) == LogsQuery(follow=True, attempt=2)
    assert read_query(b"", JobsQuery).limit == 100


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (b"limt=5", "unknown query parameter 'limt', did you mean 'limit'?"),
        (b"limit=0", "limit: give at least 1"),
        (b"limit=1001", "limit: give at most 1000"),
        (b"limit=x", "limit: 'x' is text, give a whole number"),
        (b"limit=", "limit: '' is text, give a whole number"),
        (b"limit=1&limit=2", "query parameter 'limit' is given twice"),
        (b"status=Done", "status: 'Done' is not one of: Pending, Assigned,"),
        (b"&".join(b"a%d=1" % n for n in range(40)), "the query cannot be read"),
    ],
)
def test_a_wrong_query_is_refused_by_name(query: bytes, says: str):
    with pytest.raises(BadRequest) as caught:
        read_query(query, JobsQuery)
    assert caught.value.detail.startswith(says)


@pytest.mark.parametrize("value", [b"nan", b"inf", b"-1", b"61", b"1e3"])
def test_a_wait_has_bounds(value: bytes):
    with pytest.raises(BadRequest):
        read_query(b"timeout_s=" + value, WaitQuery)


def test_threads_that_read_their_first_answer_at_once_do_not_crash():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr
