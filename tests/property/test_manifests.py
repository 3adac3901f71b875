"""Manifests: quantities agree with the official client, and no document can do worse than be refused."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
from collections.abc import Callable
from decimal import ROUND_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.api.schema.jobspec import JobSpec, to_job
from phalanx.errors import PhalanxError
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.load import load
from phalanx.manifests.quantities import NANO, VALUE_MAX, go_seconds, nanos
from phalanx.manifests.read import Manifests, read
from tests.property.manifest_cases import ASKED, LYING, NATIVE

SUFFIXES = [
    "",
    "n",
    "u",
    "m",
    "k",
    "M",
    "G",
    "T",
    "P",
    "E",
    "Ki",
    "Mi",
    "Gi",
    "Ti",
    "Pi",
    "Ei",
    "e3",
    "E-2",
    "e+1",
]
digits = st.text("0123456789", min_size=1, max_size=10)
numbers = st.one_of(
    digits,
    st.builds("{}.{}".format, digits, st.text("0123456789", max_size=8)),
    st.builds(".{}".format, st.text("0123456789", min_size=1, max_size=8)),
)
quantities = st.builds("{}{}{}".format, st.sampled_from(["", "+", "-"]), numbers, st.sampled_from(SUFFIXES))


def _official() -> Callable[[str], Decimal]:
    """The parser of the official client, without the two seconds that importing all of the client takes."""
    package = importlib.util.find_spec("kubernetes")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "utils" / "quantity.py"
    spec = importlib.util.spec_from_file_location("official_quantity", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parse: Callable[[str], Decimal] = module.parse_quantity
    return parse


official = _official()


@example("0.0000000001")
@example("1E")
@example("1e3")
@example("-.5Ki")
@given(quantities)
def test_quantities_are_read_as_the_official_client_reads_them(text: str):
    with localcontext(prec=80):
        theirs = int((official(text) * NANO).to_integral_value(ROUND_UP))  # up is away from zero
    most = VALUE_MAX * NANO
    assert nanos(text) == max(-most, min(theirs, most))


@given(st.text(max_size=30) | st.text("0123456789.eE+-KMGimnu", max_size=12) | st.integers() | st.floats())
def test_anything_is_a_quantity_or_a_value_error(value: object):
    try:
        amount = nanos(value)
    except ValueError:
        return
    assert abs(amount) <= VALUE_MAX * NANO


@given(st.text(max_size=20) | st.text("0123456789.hmsnuµ", max_size=10))
def test_any_text_is_a_duration_of_go_or_a_value_error(text: str):
    try:
        seconds = go_seconds(text)
    except ValueError:
        return
    assert seconds > 0


# Documents that are nearly right, so that every reader is reached.

TEXT = st.sampled_from(
    [
        "",
        "a",
        "default/g",
        "g",
        "-1",
        "1",
        "16Gi",
        "500m",
        "true",
        "\0",
        "\ud800",
        "x" * 300,
        "[",
        "{}",
        '["a/b"]',
        "n[1-3]",
    ]
) | st.text(max_size=8)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**31, 2**63, -(10**30)])
    | st.floats()
    | TEXT
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=5
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for key, child in inner for each in paths(child, (*path, key)))]


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any, way: str) -> None:
    *outer, last = path
    holder: Any = document
    for key in outer:
        try:
            holder = holder[key]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(holder, dict) and way == "remove":
        holder.pop(last, None)
    elif isinstance(holder, dict) and way == "add":
        holder[str(value)[:40]] = value
    elif isinstance(holder, dict) or (
        isinstance(holder, list) and isinstance(last, int) and last < len(holder)
    ):
        holder[last] = value


@st.composite
def spoiled(draw: st.DrawFn, kinds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A few documents, each with a few invalid values in it."""
    count = draw(st.integers(1, len(kinds)))
    documents = copy.deepcopy(draw(st.permutations(kinds))[:count])
    for _ in range(draw(st.integers(0, 3))):
        document = draw(st.sampled_from(documents))
        path = draw(st.sampled_from(paths(document)))
        if path:
            changed(document, path, draw(VALUE), draw(st.sampled_from(["set", "remove", "add"])))
    return documents


def as_text(documents: list[dict[str, Any]]) -> str:
    """JSON, so that YAML's reader is not used; surrogates stay as they are."""
    return json.dumps(documents).replace("NaN", '"NaN"').replace("-Infinity", "-1").replace("Infinity", "1")


def outcome(texts: list[str], cluster: list[str], **options: Any) -> Manifests | None:
    """What was read, or None for a refusal; any other error fails the test."""
    try:
        return read(
            [(f"a{number}", text) for number, text in enumerate(texts)],
            cluster=[(f"c{number}", text) for number, text in enumerate(cluster)],
            **options,
        )
    except ManifestError:
        return None


def check(made: Manifests | None) -> None:
    for found in [] if made is None else [*made.found, *(made.cluster.jobs if made.cluster else [])]:
        job = to_job(found.spec, id="1", now=0.0, user="", default_retries=3)
        assert all(0 <= placed.position < job.tasks for placed in found.placed)
        assert len({placed.position for placed in found.placed}) == len(found.placed)
        again = msgspec.json.decode(msgspec.json.encode(found.spec), type=JobSpec)
        assert to_job(again, id="1", now=0.0, user="", default_retries=3) == job


def test_the_documents_are_right_before_they_are_spoiled():
    made = outcome([as_text(ASKED)], [as_text(LYING)])
    assert made is not None
    assert len(made.jobs) == 5
    assert made.cluster is not None
    assert len(made.cluster.jobs) == 4


@given(spoiled(ASKED), st.booleans(), st.booleans())
def test_any_job_files_are_read_or_refused(documents: list[dict[str, Any]], for_plan: bool, strict: bool):
    check(outcome([as_text(documents)], [], for_plan=for_plan, strict=strict))


@given(spoiled(LYING), spoiled(ASKED))
def test_any_cluster_files_are_read_or_refused(
    cluster: list[dict[str, Any]], documents: list[dict[str, Any]]
):
    check(outcome([as_text(documents)], [as_text(cluster)]))


@given(spoiled([NATIVE]))
def test_what_is_sent_is_what_the_file_says(documents: list[dict[str, Any]]):
    made = outcome([as_text(documents)], [])
    for spec in [] if made is None else made.jobs:
        assert outcome([msgspec.json.encode(spec).decode()], []) is not None


@given(st.text(max_size=60) | st.text("ab:-[]{},&*!?|>'\"%@`# \n\t0~<", max_size=40))
def test_any_text_is_documents_or_a_refusal(text: str):
    for file in ("a.yaml", "a.json", "a.toml", "-"):
        try:
            load(file, text)
        except ManifestError:
            continue


@given(st.dictionaries(st.sampled_from(JobSpec.__struct_fields__) | TEXT, VALUE, max_size=5))
def test_any_words_are_a_job_or_a_refusal(fields: dict[str, Any]):
    try:
        spec = msgspec.convert({"groups": [{"command": ["x"]}]} | fields, JobSpec)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return
    with contextlib.suppress(PhalanxError):
        to_job(spec, id="1", now=0.0, user="", default_retries=3)
