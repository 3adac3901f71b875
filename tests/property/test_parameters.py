"""Parameters of sweeps: every index has its own values, blocks give rows back, and a template inserts them as data."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.api.schema.params import read_params
from phalanx.core.model.array import Array
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.parameters import BLOCK_ROWS, Axis, Params, RowPacker
from phalanx.core.model.resources import Request
from phalanx.core.model.template import TemplateError, escaped, fill, is_parameter_name, used_names
from phalanx.errors import BadRequest, Unprocessable

names = st.text("abz_0", min_size=1, max_size=4).filter(lambda text: is_parameter_name(text) and text != "i")
ranges = st.tuples(st.integers(-9, 9), st.integers(1, 5), st.sampled_from([1, 2, -1, 7]))
axes = st.builds(
    lambda name, parts: Axis(name, tuple(parts)),
    names,
    st.lists(st.text(max_size=5) | ranges, min_size=1, max_size=4),
)
grids = st.lists(axes, min_size=1, max_size=3, unique_by=lambda axis: axis.name)


def values_of(axis: Axis) -> list[str]:
    return [axis.value(number) for number in range(len(axis))]


@given(grids, st.integers(0, 3))
def test_the_indexes_of_a_sweep_are_its_combinations_in_order(grid: list[Axis], rows: int):
    packer = RowPacker()
    packer.add([[f"row {number}"] for number in range(rows)])
    sweep = Params(tuple(grid), packer.rows(("the_row",)) if rows else None)
    expected = [
        ({"the_row": f"row {row}"} if rows else {})
        | dict(zip((axis.name for axis in grid), cell, strict=True))
        for row in range(rows or 1)
        for cell in product(*map(values_of, grid))
    ]
    assert sweep.count == len(expected)
    assert [sweep.values(index) for index in range(1, sweep.count + 1)] == expected


@given(st.lists(st.integers(1, 1500), max_size=6), st.integers(1, 700))
def test_rows_come_back_however_they_came(pieces: list[int], wanted: int):
    packer, whole = RowPacker(), list[list[str]]()
    for number, count in enumerate(pieces):
        some = [[f"{number}.{at}", "é"] for at in range(count)]
        packer.add(some)
        whole += some
    rows = packer.rows(("a", "b"))
    assert (rows.count, len(rows.blocks)) == (len(whole), -(-len(whole) // BLOCK_ROWS))
    assert [rows.row(number) for number in range(rows.count)] == whole
    if wanted <= len(whole):
        some_of_it = rows.only([wanted - 1])
        assert some_of_it.row(wanted - 1) == whole[wanted - 1]
        assert sum(map(bool, some_of_it.blocks)) == 1


@given(st.lists(st.text("ab{}$ i.!:0", max_size=12), min_size=1, max_size=4), st.text(max_size=8))
@example(["{a.__class__}"], "")
@example(["{0}", "{a!r}", "{a:>5}"], "")
def test_a_template_has_names_alone_and_what_it_inserts_is_data(words: list[str], value: str):
    try:
        used = used_names(["prog", *words], ["a", "b"])
    except TemplateError:
        return
    assert used <= {"a", "b", "i"}
    filled = fill(["prog", *words], {"a": value, "b": "{a}"}, 7)
    parts = [word.replace("{{", "\1").replace("}}", "\2") for word in words]
    by_hand = [part.replace("{a}", "\3").replace("{b}", "\4").replace("{i}", "7") for part in parts]
    assert filled[1:] == [
        part.replace("\1", "{").replace("\2", "}").replace("\3", value).replace("\4", "{a}")
        for part in by_hand
    ]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_escaped_words_come_back_as_they_were(words: list[str]):
    assert fill(["prog", *map(escaped, words)], {}, 1) == ["prog", *words]


@given(
    st.dictionaries(names, st.text(max_size=20) | st.lists(st.integers() | st.text(max_size=3), max_size=4))
)
def test_any_grid_is_read_or_refused(given_params: dict[str, object]):
    try:
        read = read_params(given_params, (), None)
    except (BadRequest, Unprocessable):
        return
    assert (read is None) == (not given_params)
    if read is not None:
        assert read.names == tuple(given_params)
        assert read_params({axis.name: values_of(axis) for axis in read.axes}, (), None) is not None


@given(st.sets(st.integers(1, 60), min_size=1))
def test_a_job_of_some_indexes_has_their_values(indexes: set[int]):
    sweep = Params((Axis("x", ((1, 60, 1),)),))
    array = Array.of(sorted(indexes))
    assert list(array.indexes()) == sorted(indexes)
    group = Group(Command(("true",)), Request(cores=1), tasks=len(array))
    job = Job("j", (group,), "j", 0.0, array=array, params=sweep)
    assert [job.params_at(at) for at in range(len(array))] == [{"x": str(index)} for index in sorted(indexes)]


@pytest.mark.parametrize("text", ["1..3", "5..1", "0..10..5", "a,1..2", "-3..-1"])
def test_what_is_written_comes_back(text: str):
    read = read_params({"x": text}, (), None)
    assert read is not None
    assert str(read.axes[0]) == text
