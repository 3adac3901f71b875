"""Parameters of submissions: what is refused, and that the refusal names field, row and value."""

from __future__ import annotations

from contextlib import suppress
from time import process_time
from typing import Any

import pytest

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec, to_job
from phalanx.api.schema.params import check_rows, check_templates, index_warnings, read_params
from phalanx.api.schema.submission import SubmitRequest, to_jobs
from phalanx.core.model.job import Job
from phalanx.errors import BadRequest, PhalanxError, Unprocessable


def submitted(**fields: Any) -> Job:
    request = SubmitRequest(**{"command": ["train", "--lr", "{lr}"], **fields})
    jobs, _ = to_jobs(request, new_id=lambda: "j", now=0.0, user="ada", default_retries=0)
    return jobs[0][1]


def test_a_grid_is_an_array_from_1_and_is_kept_as_it_was_written():
    job = submitted(params={"lr": [0.1, "1e-3"], "seed": "1..100000"}, at_once=4)
    assert (job.tasks, str(job.array), job.groups[0].at_once) == (200_000, "1-200000%4", 4)
    assert job.params is not None
    assert job.params.axes[1].parts == ((1, 100_000, 1),)
    assert job.params_at(100_001) == {"lr": "1e-3", "seed": "2"}


def test_an_array_is_warned_of_an_index_in_program_code():
    code = ["sh", "-c", "echo {i}"]
    (warning,) = index_warnings(submitted(command=code, array="1-4"))
    assert "word 3" in warning and "PHALANX_ARRAY_INDEX" in warning
    assert index_warnings(submitted(command=["echo", "{i}"], array="1-4")) == []
    assert index_warnings(submitted(command=code)) == []


def test_an_array_says_which_tasks_of_a_sweep_run():
    job = submitted(params={"lr": "1..9"}, array="2-9:3%1")
    assert [job.params_at(at)["lr"] for at in range(3)] == ["2", "5", "8"]
    assert job.groups[0].at_once == 1
    with pytest.raises(BadRequest, match="no task 10: the parameters make tasks 1 to 9"):
        submitted(params={"lr": "1..9"}, array="5-10")


def test_rows_and_a_grid_are_combined():
    job = submitted(params={"lr": "1,2"}, each=[{"data": "a"}, {"data": "b"}])
    found = [tuple(job.params_at(at).values()) for at in range(4)]
    assert found == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]


def test_single_values_are_lines():
    job = submitted(command=["cat", "{line}", "{i}"], each=["one", 2, True])
    assert [job.params_at(at) for at in range(3)] == [{"line": "one"}, {"line": "2"}, {"line": "true"}]


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"params": {"lr": "1..1000001"}}, Unprocessable, "1000001 combinations"),
        ({"params": {"lr": "1..1000", "b": "1..1001"}}, Unprocessable, "1001000 combinations"),
        ({"params": {"lr": ""}}, BadRequest, r"params\.lr.*empty value"),
        ({"params": {"lr": []}}, BadRequest, r"params\.lr.*no value"),
        ({"params": {"lr": {"a": 1}}}, BadRequest, r"params\.lr.*not a list"),
        ({"params": {"lr": [None]}}, BadRequest, r"params\.lr.*null"),
        ({"params": {"lr": ["a\0b"]}}, BadRequest, r"params\.lr.*NUL"),
        ({"params": {"lr": ["x" * 5000]}}, BadRequest, r"params\.lr: 5000 bytes"),
        ({"params": {"lr": "0.1..0.5"}}, BadRequest, "whole numbers"),
        ({"params": {"lr": "1..5..0"}}, BadRequest, "never comes to its end"),
        ({"params": {"lr": "1..5..-1"}}, BadRequest, "never comes to its end"),
        ({"params": {"i": "1"}}, BadRequest, "index of the task"),
        ({"params": {"a-b": "1"}}, BadRequest, "'a-b' is not the name"),
        ({"params": {"lr": "1"}, "each": [{"lr": 2}]}, BadRequest, "'lr' is also a column"),
        ({"each": [{"lr": 1}, {}]}, BadRequest, "each: row 2 has no 'lr'"),
        ({"each": [{"lr": 1}, {"lr": 2, "x": 3}]}, BadRequest, "each: row 2 has 'x'"),
        ({"each": [{"lr": 1}, 5]}, BadRequest, "row 2: 5 is not an object"),
        ({"each": [{"lr": None}]}, BadRequest, "row 1.*null"),
        ({"params": {"lr": "1,2"}, "tasks": 2}, BadRequest, "tasks: 2 start together"),
        ({"each": ["x"] * 50_001}, BadRequest, "each: 50001 rows are too many in one request"),
        ({"at_once": 4}, BadRequest, "at_once: given without parameters"),
        ({"params": {"x": "1"}}, BadRequest, "there is no parameter 'lr'"),
        ({"params": {"lr": "1"}, "kind": "vps", "command": []}, BadRequest, "params: a VPS has none"),
    ],
)
def test_what_is_refused_names_field_row_and_value(
    fields: dict[str, Any], error: type[PhalanxError], said: str
):
    with pytest.raises(error, match=said):
        submitted(**fields)


@pytest.mark.parametrize(
    ("word", "at"),
    [
        ("{lr.__class__}", 1),
        ("a{0}", 2),
        ("{lr!r}", 1),
        ("{lr:>5}", 1),
        ("{}", 1),
        ("ab}", 3),
        ("{lr}{", 5),
        ('{"json": 1}', 1),
        ("{lr[0]}", 1),
    ],
)
def test_a_template_has_names_alone_and_an_error_has_its_place(word: str, at: int):
    with pytest.raises(BadRequest, match=rf"command: word 2, character {at}: ") as told:
        submitted(command=["prog", word], params={"lr": "1"})
    assert told.value.reason == "BadTemplate"


def test_braces_of_commands_without_parameters_stay_as_they_are():
    assert submitted(command=["awk", "{0.x} }{"]).groups[0].command.argv == ("awk", "{0.x} }{")


def test_no_value_is_put_into_a_program_text():
    with pytest.raises(BadRequest, match=r'shell: word 3, character 6: \{lr\} .* write "\$PHALANX_PARAM_lr"'):
        submitted(command=[], shell="echo {lr}", params={"lr": "1"})
    with pytest.raises(BadRequest, match="program code"):
        submitted(command=["bash", "-lc", "run {i}"], params={"lr": "1"})
    kept = submitted(command=[], shell="for i in a; do echo ${i} ${lr} {x.y}; done", params={"lr": "1"})
    assert kept.groups[0].command.argv[2] == "for i in a; do echo ${i} ${lr} {x.y}; done"


def test_a_parameter_that_the_command_forgets_is_warned_about():
    job = submitted(params={"lr": "1", "seed": "2"})
    assert "seed" in check_templates(job.params, job.groups)[0]
    both = submitted(command=["train", "--seed", "1"], params={"lr": "1", "seed": "2"})
    assert "the same for every task" in check_templates(both.params, both.groups)[0]
    line = "train $PHALANX_PARAM_lr --seed ${PHALANX_PARAM_seed}"
    silent = submitted(command=[], shell=line, params={"lr": "1", "seed": "2"})
    assert check_templates(silent.params, silent.groups) == []
    whole = submitted(command=["sh", "-c", 'echo "$PHALANX_PARAMS"'], params={"lr": "1", "seed": "2"})
    assert check_templates(whole.params, whole.groups) == []


def test_job_files_have_the_same():
    spec = JobSpec([GroupSpec(command=["t", "{x}"], at_once=2)], params={"x": "1..3"})
    job = to_job(spec, id="j", now=0.0, user="ada", default_retries=0)
    assert (job.tasks, job.groups[0].at_once, job.params_at(2)) == (3, 2, {"x": "3"})
    for wrong in (
        JobSpec([GroupSpec(command=["t"]), GroupSpec(name="b", command=["t"])], params={"x": "1"}),
        JobSpec([GroupSpec(command=["t"], tasks=4)], params={"x": "1"}),
        JobSpec([GroupSpec(command=["t"])], gang=True, params={"x": "1"}),
        JobSpec([GroupSpec(command=["t", "{y}"])], each=[{"x": 1}]),
    ):
        with pytest.raises(BadRequest):
            to_job(wrong, id="j", now=0.0, user="ada", default_retries=0)


def test_what_utf8_cannot_spell_is_refused_with_its_row():
    with pytest.raises(BadRequest, match=r"each: row 2, line: .* is not text that UTF-8 can spell"):
        read_params({}, ["é", "\ud800"], None)


def test_a_row_has_a_limit_as_a_whole():
    wide = [["x" * 4000] * 10]
    with pytest.raises(BadRequest, match="row 5 has 40000 bytes"):
        check_rows(wide, [f"c{at}" for at in range(10)], 5, "rows")


def test_a_command_names_only_so_many_parameters():
    with pytest.raises(BadRequest, match="65 parameters are too many"):
        submitted(command=["t", "{lr}" * 65], params={"lr": "1"})


def test_without_any_parameter_there_is_no_sweep():
    assert read_params({}, (), None) is None


@pytest.mark.parametrize("text", ["1.." * 300_000 + "x", ",".join(["1.." * 1300 + "x"] * 250)])
def test_a_text_that_is_nearly_a_range_is_read_in_no_time(text: str):
    began = process_time()
    with suppress(PhalanxError):
        read_params({"x": text}, (), None)
    assert process_time() - began < 2  # a pattern that tries every place would take minutes


def test_of_a_parameter_with_many_values_each_is_found_at_once():
    params = read_params({"x": [str(number) for number in range(100_000)], "y": "1..2,a,7..5"}, (), None)
    assert params is not None
    began = process_time()
    found = [params.values(index)["x"] for index in range(1, 600_001, 6)]
    assert found == [str(number) for number in range(100_000)]
    assert process_time() - began < 20  # looking at every value for every task would take minutes
    assert [params.values(index)["y"] for index in range(1, 8)] == ["1", "2", "a", "7", "6", "5", "1"]


def test_a_parameter_does_not_name_the_program():
    for command in (["{lr}"], ["./{lr}", "x"], ["{i}"]):
        with pytest.raises(BadRequest, match="word 1: the program has a parameter"):
            submitted(command=command, params={"lr": [1]})
    assert submitted(command=["env", "{lr}"], params={"lr": [1]}).tasks == 1
