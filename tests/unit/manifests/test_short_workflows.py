"""The short form of workflow files: what it means, and every mistake told with its field and its line."""

from __future__ import annotations

import pytest

from phalanx.api.schema.workflows import WorkflowSpec
from phalanx.cli.workflow import EXAMPLE
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.read import read

FLOW = """
name: etl
cores: 2
stages:
  - name: fetch
    command: [./fetch.sh]
  - name: clean
    command: ./clean.sh < raw > clean
    needs: [fetch]
    cores: 4
    retries: 1
  - {name: plot, shell: make plot, needs: fetch}
"""


def read_one(text: str) -> WorkflowSpec:
    made = read([("flow.yaml", text)])
    assert (made.found, made.warnings) == ([], [])
    [found] = made.workflows
    return found.spec


def refused(text: str) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        read([("flow.yaml", text)])
    return caught.value


def edges(stages: str) -> dict[str, list[str]]:
    spec = read_one(f"name: x\ntaskType: echo\nstages: [{stages}]")
    return {stage.name: stage.after for stage in spec.stages}


def test_the_fields_of_a_stage_are_beside_its_name():
    spec = read_one(FLOW)
    fetch, clean, plot = (stage.job.groups[0] for stage in spec.stages)
    assert (spec.name, [stage.after for stage in spec.stages]) == ("etl", [[], ["fetch"], ["fetch"]])
    assert (fetch.command, fetch.cores) == (["./fetch.sh"], 2)
    assert (clean.command, clean.shell, clean.cores) == ([], "./clean.sh < raw > clean", 4)
    assert (plot.shell, [stage.job.max_retries for stage in spec.stages]) == ("make plot", [2, 1, 2])


@pytest.mark.parametrize("word", ["needs", "dependsOn", "after"])
def test_three_words_mean_what_comes_before(word: str):
    found = edges(f"{{name: a}}, {{name: b}}, {{name: c, {word}: [a, b]}}")
    assert found == {"a": [], "b": [], "c": ["a", "b"]}


def test_without_any_such_word_stages_follow_each_other():
    assert edges("{name: a}, {}, {id: c}") == {"a": [], "stage-2": ["a"], "c": ["stage-2"]}
    assert edges("{name: a}, {name: b, needs: []}") == {"a": [], "b": []}


def test_it_means_the_same_as_the_form_with_a_spec():
    long = """
metadata: {name: etl}
spec:
  cores: 2
  deadline: 2h
  graph:
    nodes:
      - {name: fetch, spec: {command: [./fetch.sh]}}
      - {name: clean, dependsOn: [fetch], spec: {shell: ./clean.sh < raw > clean, cores: 4, retries: 1}}
      - {name: plot, dependsOn: [fetch], spec: {shell: make plot}}
"""
    assert read_one(FLOW + "deadline: 2h\n") == read_one(long)
    for head in ("kind: Workflow\n", "apiVersion: phalanx/v1\nkind: workflow\n"):
        assert read_one(head + FLOW) == read_one(FLOW)


def test_a_stage_has_its_own_command_and_else_that_of_the_root():
    spec = read_one("command: [make, all]\nstages: [{name: a}, {name: b, shell: make b}, {command: make c}]")
    groups = [stage.job.groups[0] for stage in spec.stages]
    assert [(each.command, each.shell) for each in groups] == [
        (["make", "all"], None),
        ([], "make b"),
        ([], "make c"),
    ]


def test_a_job_elsewhere_and_conditions_and_references_are_read():
    id = "01hzxw8q5v3k9m2n4p6r8s0t1v"
    spec = read_one(f"""
stages:
  - {{name: a, needs: ['{id}:any'], command: [make]}}
  - {{name: b, needs: [a], command: [echo, '${{a.result.x}}'], condition: {{node: a, field: x, equals: 1}}}}
""")
    assert spec.stages[0].job.after == [f"{id}:any"]
    assert spec.stages[1].condition is not None


@pytest.mark.parametrize(
    ("line", "right", "wrong", "told"),
    [
        (2, "name: etl", "name: 3", "name: 3 is not text"),
        (3, "cores: 2", "core: 2", "core: is unknown, did you mean 'cores'?"),
        (3, "cores: 2", "needs: []", "needs: belongs into a stage"),
        (3, "cores: 2", "deadlin: 2h", "deadlin: is unknown, did you mean 'deadline'?"),
        (12, "name: plot", "name: clean", "stages[2].name: 'clean' is already the name of stages[1]"),
        (
            5,
            "command: [./fetch.sh]",
            "commands: [./fetch.sh]",
            "stages[0].commands: is unknown, did you mean",
        ),
        (5, "command: [./fetch.sh]", "", "stages[0].command: is missing"),
        (6, "command: [./fetch.sh]", "spec: {command: [x]}", "stages[0].spec: is unknown here"),
        (5, "command: [./fetch.sh]", "command: 3", "stages[0].command"),
        (
            9,
            "needs: [fetch]",
            "needs: [fech]",
            "stages[1].needs: there is no stage 'fech', did you mean 'fetch'?",
        ),
        (9, "needs: [fetch]", "needs: 3", "stages[1].needs: 3 is not a list of names"),
        (9, "needs: [fetch]", "needs: [clean]", "stages[1] (clean).after: the stage names itself"),
        (10, "cores: 4", "cores: -4", "cores"),
        (
            9,
            "needs: [fetch]",
            "depends_on: [fetch]",
            "stages[1].depends_on: is unknown, did you mean 'needs'?",
        ),
        (6, "command: [./fetch.sh]", "run: make", "stages[0].run: is unknown, did you mean 'command'?"),
        (10, "cores: 4", "after: [fetch]", "stages[1].after: and needs are both given"),
        (10, "cores: 4", "budget: 3", "stages[1].budget: is of the whole workflow"),
        (8, "< raw", "${fetch.result.x}", "would be run as part of it"),
    ],
)
def test_mistakes_are_told_with_their_field_and_line(line: int, right: str, wrong: str, told: str):
    error = refused(FLOW.replace(right, wrong, 1))
    assert error.detail.startswith("flow.yaml:")
    assert told in error.detail
    where = int(error.where.removeprefix("flow.yaml:"))
    assert where == line or (where == 7 and 7 < line < 12), (
        "of what is only seen in the whole, the stage is named"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "name: x\nstages: {a: {command: [x]}}",
            "stages: {'a': {'command': ['x']}} is not a list of mappings",
        ),
        ("name: x\nstages: []", "stages: there is none"),
        ("stages: [{command: [x]}]\ngraph: {nodes: []}", "graph: and stages are both given"),
        ("metadata: {name: x}\nstages: [{command: [x]}]", "is of a workflow, not of a job: one has `name`"),
        (
            "stages: [{name: a, needs: [b], command: [x]}, {name: b, needs: [a], command: [x]}]",
            "they wait for each other in a circle: a → b → a",
        ),
    ],
)
def test_mistakes_of_the_whole_file(text: str, told: str):
    assert told in refused(text).detail


def test_the_workflow_is_named_in_its_errors():
    assert "workflow etl: stages[1]" in refused(FLOW.replace("needs: [fetch]", "needs: [x]")).detail


def test_the_example_of_the_command_line_has_what_most_files_need():
    spec = read_one(EXAMPLE)
    assert [stage.after for stage in spec.stages] == [[], ["prepare"], ["train"]]
    assert spec.stages[1].job.groups[0].env == {"ROWS": "${prepare.result.rows}"}
