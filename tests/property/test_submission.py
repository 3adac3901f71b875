"""Any document becomes jobs or a typed refusal, and never anything else."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
from hypothesis import given, reject
from hypothesis import strategies as st

from phalanx.api.schema.documents import read_document
from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.submission import SubmitRequest, to_jobs
from phalanx.api.schema.targets import TARGETS_MAX
from phalanx.core.model.job import Job
from phalanx.errors import BadRequest, PhalanxError, Unprocessable

FIELDS = SubmitRequest.__struct_fields__
NASTY_TEXT = st.sampled_from(
    [
        "",
        "\0",
        "\ud800",
        "n1",
        "n1:0::0,1",
        "n1:9",
        "::",
        "0-999999999",
        "1-5%2",
        "16GiB",
        "1h",
        "-1",
        "NaN",
        "x" * 300,
    ]
)
TEXT = NASTY_TEXT | st.text(max_size=20)
NUMBER = st.sampled_from([0, -1, 1, 2**31, 2**63, 10**40]) | st.integers()
FLOAT = st.floats() | st.sampled_from([0.0, -0.0, 1e308])
SCALAR = st.none() | st.booleans() | NUMBER | FLOAT | TEXT
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)
DOCUMENT = st.dictionaries(st.sampled_from(FIELDS) | TEXT, VALUE, max_size=8)

# Values of the right types, so that the checks behind the types are reached.
TYPED: dict[str, st.SearchStrategy[Any]] = {
    "command": st.lists(TEXT, max_size=4),
    "shell": st.none() | TEXT,
    "kind": st.sampled_from(["command", "command", "command", "vps"]),
    "targets": st.lists(TEXT, max_size=4),
    "required_gpus": st.none() | st.lists(st.lists(NUMBER, max_size=3), max_size=4),
    "cores": NUMBER,
    "memory": NUMBER | TEXT,
    "gpus": NUMBER,
    "gpu_type": st.none() | TEXT,
    "gpu_memory": NUMBER | TEXT,
    "priority": NUMBER,
    "queue": TEXT,
    "array": st.none() | TEXT,
    "name": TEXT,
    "env": st.dictionaries(TEXT, TEXT, max_size=3),
    "cwd": st.none() | TEXT,
    "time_limit": st.none() | FLOAT | TEXT,
    "grace": st.none() | FLOAT | TEXT,
    "max_retries": st.none() | NUMBER,
    "max_attempts": st.none() | NUMBER,
    "no_queue": st.booleans(),
    "allow_infeasible": st.booleans(),
    "request_id": st.none() | TEXT,
    "tasks": st.sampled_from([1, 1, 2, 16]) | NUMBER,
    "min": st.sampled_from([0, 0, 1, 2]) | NUMBER,
    "gather": st.lists(st.builds(GatherSpec, TEXT, st.booleans(), NUMBER), max_size=2),
    "gang_wait": st.none() | FLOAT | TEXT,
    "labels": st.dictionaries(TEXT, TEXT, max_size=3),
    "tags": st.dictionaries(TEXT, TEXT, max_size=3),
    "after": st.lists(TEXT, max_size=3),
    "preemption": st.sampled_from(["lower", "never"]),
    "evictable": st.booleans(),
    "min_run": FLOAT | TEXT,
    "network": st.sampled_from(["node", "overlay"]),
    "ip_token": st.none() | TEXT,
    "names": st.booleans(),
    "require_isolation": st.booleans(),
    "subdomain": TEXT,
    "split_output": st.booleans(),
    "attached": st.booleans(),
    "stdin": st.booleans(),
    "exported": st.dictionaries(TEXT, TEXT, max_size=3),
    "hold": st.booleans(),
    "begin": st.none() | FLOAT | TEXT | st.sampled_from(["+2h", "now", "2027-01-31T08:00:00Z", "18:00"]),
    "nodes": st.lists(TEXT | st.sampled_from(["n1", "N2", "n1"]), max_size=3),
    "exclude": st.lists(TEXT | st.sampled_from(["n1", "n2"]), max_size=3),
    "exclusive": st.booleans(),
    "spread": st.booleans(),
    "params": st.dictionaries(TEXT, TEXT | st.sampled_from(["1..5", "0.1,0.01"]), max_size=2),
    "each": st.lists(TEXT | st.dictionaries(TEXT, TEXT, max_size=2), max_size=3),
    "rows": st.none() | TEXT,
    "at_once": st.integers(),
    "image": TEXT
    | st.sampled_from(["busybox:1", "rootfs:/srv/x", "/srv/x.tar", "localhost:5000/a/b@sha256:0"]),
    "mounts": st.lists(
        TEXT | st.sampled_from(["/data:/data", "/a:/b:ro", "/a:/../b", ":", "/a:/b:rw"]), max_size=3
    ),
}
FEW_FIELDS = st.lists(st.sampled_from(FIELDS), max_size=4, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: TYPED[name] for name in names})
)


def outcome(request: SubmitRequest | bytes) -> list[Job] | PhalanxError:
    """The jobs, or the refusal; any other error fails the test."""
    ids = (f"id{number}" for number in itertools.count())
    try:
        if isinstance(request, bytes):
            request = read_document(request, SubmitRequest)
        jobs, failed = to_jobs(request, new_id=lambda: next(ids), now=1.0, user="ada", default_retries=3)
    except PhalanxError as error:
        return error
    assert len(jobs) + len(failed) == max(1, len(request.targets)) <= TARGETS_MAX
    return [job for _, job in jobs]


def spelled(value: object) -> bytes:
    """The value as JSON; an example that JSON cannot express is skipped."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):
        reject()


def check_refusal(error: PhalanxError) -> None:
    assert isinstance(error, BadRequest | Unprocessable)
    assert error.detail.encode()  # it can be sent


def test_every_field_is_tried():
    assert set(TYPED) == set(FIELDS)


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes):
    found = outcome(body)
    if isinstance(found, PhalanxError):
        check_refusal(found)


@given(DOCUMENT)
def test_any_document(document: dict[str, Any]):
    found = outcome(spelled(document))
    if isinstance(found, PhalanxError):
        check_refusal(found)


@given(FEW_FIELDS)
def test_any_values_of_the_right_types(fields: dict[str, Any]):
    found = outcome(SubmitRequest(**{"command": ["true"]} | fields))
    if isinstance(found, PhalanxError):
        check_refusal(found)
        return
    for job in found:
        assert job.batch == found[0].id
        assert job.groups[0].command.argv
        assert "\0" not in "".join(job.groups[0].command.argv)
        asked = job.groups[0].request
        assert min(asked.cores, asked.gpus, job.max_retries, job.grace_s, job.min_run_s) >= 0
        assert asked.target is None or len(asked.target.devices) in (0, asked.gpus)
        assert (job.gang is None) == (job.tasks == 1 or job.array is not None)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(job), type=Job) == job


@given(FEW_FIELDS)
def test_what_is_accepted_is_accepted_again_from_the_wire(fields: dict[str, Any]):
    request = SubmitRequest(**{"command": ["true"]} | fields)
    found = outcome(request)
    if not isinstance(found, PhalanxError):
        assert outcome(spelled(request)) == found
