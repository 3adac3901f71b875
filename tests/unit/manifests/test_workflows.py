"""Workflow files: their three shapes, what stages inherit, and every mistake told with its field."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.api.schema.workflows import WorkflowSpec
from phalanx.core.model.job import RETRIES_MAX
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.read import read

HEAD = "apiVersion: flowmesh/v1\nkind: Workflow\nmetadata: {name: ft}\n"


def read_one(text: str) -> WorkflowSpec:
    [found] = read([("flow.yaml", HEAD + text)]).workflows
    return found.spec


def told(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        read([("flow.yaml", HEAD + text)])
    return caught.value.detail


def edges(spec: WorkflowSpec) -> dict[str, list[str]]:
    return {stage.name: stage.after for stage in spec.stages}


def test_a_single_task():
    spec = read_one("spec: {taskType: inference, data: {items: [hi]}}")
    [stage] = spec.stages
    assert (spec.name, stage.name, stage.task_type, stage.after) == ("ft", "task", "inference", [])
    assert stage.spec == {"taskType": "inference", "data": {"items": ["hi"]}}


def test_stages_are_a_chain_unless_they_say_otherwise():
    """C25."""
    spec = read_one("""
spec:
  taskType: echo
  stages:
    - {name: a}
    - {}
    - {id: c, dependsOn: a}
    - {name: d, dependsOn: []}
""")
    assert edges(spec) == {"a": [], "stage-2": ["a"], "c": ["a"], "d": ["c"]}


def test_a_graph_has_no_edges_but_those_written():
    """C25."""
    spec = read_one(
        "spec: {taskType: echo, graph: {nodes: [{name: a}, {}, {name: c, dependsOn: [a, node-2]}]}}"
    )
    assert edges(spec) == {"a": [], "node-2": [], "c": ["a", "node-2"]}


def test_stages_inherit_the_spec_at_the_top_merged_deeply():
    spec = read_one("""
spec:
  taskType: sft
  model: {source: {identifier: org/a, revision: main}, adapters: [x]}
  stages:
    - {name: a, spec: {model: {source: {identifier: org/b}, adapters: [y, z]}, taskType: ppo}}
    - {name: b}
""")
    first, second = spec.stages
    assert first.spec["model"] == {
        "source": {"identifier": "org/b", "revision": "main"},
        "adapters": ["y", "z"],
    }
    assert (first.task_type, second.task_type) == ("ppo", "sft")
    assert second.spec["model"]["adapters"] == ["x"]


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        ("{cpu: 8}", {"cores": 8}),
        ("{cpu: '8'}", {"cores": 8}),
        ("{cpu: 500m}", {"cores": 0.5}),
        ("{cpu: 0.5}", {"cores": 0.5}),
        ("{memory: 64Gi}", {"memory": "64Gi"}),
        (
            "{gpu: {type: A100, count: 2, memory: 40GB}}",
            {"gpus": 2, "gpu_type": "*a100*", "gpu_memory": "40GB"},
        ),
        ("{gpu: {type: any}}", {"gpus": 1, "gpu_type": None}),
        ("{gpu: {type: NVIDIA GeForce RTX 4090}}", {"gpus": 1, "gpu_type": "*nvidia-geforce-rtx-4090*"}),
        ("{gpu: 4}", {"gpus": 4}),
    ],
)
def test_hardware(hardware: str, expected: dict[str, Any]):
    spec = read_one(f"spec: {{taskType: sft, resources: {{hardware: {hardware}, estimatedLoad: 3}}}}")
    [group] = spec.stages[0].job.groups
    found = {key: getattr(group, key) for key in expected}
    assert found == expected


@pytest.mark.parametrize(
    ("written", "retries"),
    [
        ("", 2),
        ("max_attempts: 1,", 0),
        ("maxAttempts: 5,", 4),
        ("max_attempts: 0,", 0),
        ("retries: 0,", 0),
        ("retries: 5,", 5),
        ("max_retries: 5,", 5),
        ("max_attempts: -1,", RETRIES_MAX),
    ],
)
def test_attempts_are_counted_in_all(written: str, retries: int):
    spec = read_one(f"spec: {{{written} taskType: sft}}")
    assert spec.stages[0].job.max_retries == retries


def test_a_stage_may_give_a_command_and_the_fields_of_a_job():
    spec = read_one("""
spec:
  command: [python, train.py, --steps, "3"]
  env: {SEED: 7}
  cores: 2
  time_limit: 1h
  priority: 5
  params: {lr: 0.1}
""")
    [stage] = spec.stages
    assert stage.job.groups[0].command == ["python", "train.py", "--steps", "3"]
    assert (stage.job.groups[0].env, stage.job.groups[0].cores) == ({"SEED": "7"}, 2)
    assert (stage.job.time_limit, stage.job.priority) == ("1h", 5)
    assert stage.spec == {"params": {"lr": 0.1}}


def test_cores_may_be_thousandths():
    assert read_one("spec: {command: [x], cores: 500m}").stages[0].job.groups[0].cores == 0.5


def test_a_job_elsewhere_is_named_by_its_whole_id():
    id = "01hzxw8q5v3k9m2n4p6r8s0t1v"
    spec = read_one(
        f"spec: {{taskType: echo, graph: {{nodes: [{{name: a, dependsOn: ['{id}', '{id[:-1]}0:any']}}]}}}}"
    )
    assert spec.stages[0].after == []
    assert spec.stages[0].job.after == [id, f"{id[:-1]}0:any"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec: {}", "spec: is missing or empty"),
        ("spec: {model: x}", "spec.taskType: is missing"),
        ("spec: {taskType: ''}", "spec.taskType: '' is not a task type"),
        ("spec: {taskType: 3}", "spec.taskType: 3 is not a task type"),
        ("extra: 1\nspec: {taskType: a}", "extra: is unknown at the top of a workflow"),
        ("spec: {taskType: a, stages: [{name: a}], graph: {nodes: []}}", "stages: and graph are both given"),
        ("spec: {taskType: a, stages: [{name: a}, {name: a}]}", "'a' is already the name of stages[0]"),
        ("spec: {taskType: a, stages: [{name: a, dependsOn: [a]}]}", "the stage names itself"),
        ("spec: {taskType: a, stages: [{name: a, dependsOn: 3}]}", "dependsOn: 3 is not a list of names"),
        ("spec: {taskType: a, stages: [{name: a, dependsOn: x}]}", "dependsOn: there is no stage 'x'"),
        ("spec: {taskType: a, stages: [{name: ab}, {name: c, dependsOn: [abb]}]}", "did you mean 'ab'?"),
        ("spec: {taskType: a, stages: [{name: a, extra: 1}]}", "extra: is unknown here"),
        ("spec: {taskType: a, stages: [{name: 'a b'}]}", "is not the name of a stage"),
        ("spec: {taskType: a, stages: []}", "stages: there is none"),
        ("spec: {taskType: a, graph: {edges: []}}", "edges: is unknown: a graph has nodes"),
        (
            "spec: {taskType: a, graph: {nodes: [{name: a, dependsOn: [b]}, {name: b, dependsOn: [a]}]}}",
            "they wait for each other in a circle: a → b → a",
        ),
        ("spec: {taskType: a, resources: {hardware: {cpus: 3}}}", "spec.resources.hardware.cpus: is unknown"),
        (
            "spec: {taskType: a, resources: {hardware: {cpu: many}}}",
            "spec.resources.hardware.cpu: 'many' is not",
        ),
        ("spec: {taskType: a, resources: {hardware: {memory: lots}}}", "memory"),
        ("spec: {command: [x], core: 3}", "spec.core: is unknown, did you mean 'cores'?"),
        ("spec: {command: x}", "spec.command"),
        ("spec: {command: [x], cpu: 500m}", "spec.cpu: is unknown, write cores: 0.5"),
        ("spec: {command: [x], cores: 5x}", "spec.cores: '5x' is not a number of cores"),
        (
            "spec: {stages: [{name: a, spec: {comand: [x]}}]}",
            "spec.comand: is unknown, did you mean 'command'?",
        ),
        ("spec: {stages: [{name: a, spec: {tasktype: x}}]}", "did you mean 'taskType'?"),
        (
            "spec: {taskType: a, stages: [{name: a}, {name: b, after: [a]}]}",
            "stages[1].after: is unknown here: name",
        ),
        ("spec: {taskType: a, stages: [{name: a}, {name: b, after: [a]}]}", "in dependsOn"),
        ("spec: {taskType: a, stages: [{name: a}, {name: b, spec: {after: [a]}}]}", "in dependsOn"),
        (
            "spec: {taskType: a, deadlin: 2h, stages: [{name: a}]}",
            "spec.deadlin: is unknown, did you mean 'deadline'?",
        ),
        ("spec: {taskType: a, budgets: 2}", "spec.budgets: is unknown, did you mean 'budget'?"),
        ("spec: {taskType: a, stags: [{name: a}]}", "spec.stags: is unknown, did you mean 'stages'?"),
        ("spec: {taskType: a, cores: 2, resources: {hardware: {cpu: 3}}}", "contradicts resources.hardware"),
        ("spec: {taskType: a, max_attempts: 2, max_retries: 1}", "are both given"),
        ("spec: {taskType: a, retries: 2, max_retries: 1}", "are both given"),
        ("spec: {taskType: a, condition: {node: a, field: b, equals: c}}", "there is no other stage to ask"),
        (
            "spec: {taskType: a, stages: [{name: a}, {name: b, spec: {condition: {node: c, field: x, equals: 1}}}]}",
            "condition.node: 'c' is not among the stages in its `after`",
        ),
        (
            "spec: {taskType: a, stages: [{name: a}, {name: b, spec: {condition: {node: a}}}]}",
            "condition.field",
        ),
    ],
)
def test_mistakes_are_told_with_their_field(text: str, expected: str):
    assert expected in told(text)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("${}", "names no stage"),
        ("${a}", "has no path: write ${a.result}"),
        ("${x.result.y}", "there is no stage 'x' (stages: a, b)"),
        ("${b.result}", "the stage refers to its own result"),
        (
            "${a.__class__.__mro__}",
            ".spec.data.deep[0]: ${a.__class__.__mro__}: '__class__' is not a key of a result",
        ),
        ("$${a}", ""),
        ("${HOME}", "has no path"),
        ("${a.result.x", ".spec.data.deep[0]: '${a.result.x' is not closed"),
        ("${a.result} and ${a.result.x", "'${a.result.x' is not closed"),
        ("${a.result{x}}", "is not closed: write ${STAGE.result.KEY}, or $${ for a plain ${"),
        ("$${ and ${", "is not closed"),
        ("$${ {", ""),
        ("$ {a", ""),
    ],
)
def test_references_are_read_when_the_file_is(reference: str, expected: str):
    text = f"spec: {{taskType: a, stages: [{{name: a}}, {{name: b, spec: {{data: {{deep: ['{reference}']}}}}}}]}}"
    if expected:
        assert expected in (said := told(text))
        assert "stages[1] (b)" in said
    else:
        assert read_one(text).name == "ft"


def test_a_reference_to_a_misspelt_stage_says_which_is_near():
    text = "spec: {taskType: a, stages: [{name: train}, {name: b, spec: {data: '${trian.result.x}'}}]}"
    assert "there is no stage 'trian', did you mean 'train'?" in told(text)


def test_a_program_text_is_left_to_the_shell():
    shell = (
        "spec: {stages: [{name: a, spec: {taskType: x}}, {name: b, spec: {shell: 'echo ${HOME} ${x:-y}'}}]}"
    )
    assert read_one(shell).stages[1].job.groups[0].shell == "echo ${HOME} ${x:-y}"
    assert "would be run as part of it" in told(shell.replace("${HOME}", "${a.result.x}"))


@pytest.mark.parametrize(
    "command",
    [
        "bash, -lc, TEXT",
        "sh, -ec, TEXT",
        "env, -S, TEXT",
        "python, -Ic, TEXT",
        "node, --eval, TEXT",
        "perl, -ne, TEXT",
    ],
)
def test_a_reference_in_a_program_text_is_refused_however_the_option_is_written(command: str):
    flow = (
        f"spec: {{stages: [{{name: a, spec: {{taskType: x}}}}, {{name: b, spec: {{command: [{command}]}}}}]}}"
    )
    assert "would be run as part of it" in told(flow.replace("TEXT", '"echo ${a.result.x}"', 1))
    read_one(flow.replace("TEXT", '"echo ${HOME} ${x:-y}"', 1))


def test_a_bomb_of_aliases_is_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    text = "spec:\n  taskType: echo\n  data:\n" + "\n".join(f"    {line}" for line in lines)
    assert "alias" in told(text)


@pytest.mark.parametrize("field", ["data", "env"])
def test_what_stages_inherit_is_counted(field: str):
    """A file of some kilobytes must not become a workflow of a gigabyte."""
    large = ", ".join(f"k{number}: '{'x' * 900}'" for number in range(90))
    stages = ", ".join(["{}"] * 300)
    text = f"spec: {{taskType: echo, {field}: {{{large}}}, stages: [{stages}]}}"
    assert "with what the stages inherit they are over the limit" in told(text)


def test_what_stages_inherit_is_counted_over_all_documents():
    root, stages = ", ".join(["'xxxxxxx'"] * 600), ", ".join(["{}"] * 1500)
    one = f"spec: {{taskType: echo, data: [{root}], stages: [{stages}]}}\n"
    assert len(read([("flow.yaml", one)]).workflows) == 1
    with pytest.raises(ManifestError, match="over the limit"):
        read([("flow.yaml", "---\n".join([one] * 3))])


def test_stages_are_counted_before_any_is_read():
    text = f"spec: {{taskType: echo, stages: [{', '.join(['{}'] * 10_001)}]}}"
    assert "has 10001 stages, at most 10000" in told(text)


def test_old_versions_and_files_without_one_are_workflows_too():
    for head in ("apiVersion: mloc/v1\nkind: Anything\n", ""):
        [found] = read([("flow.yaml", head + "spec: {taskType: echo}")]).workflows
        assert found.spec.stages[0].task_type == "echo"


def test_what_is_not_read_is_told():
    made = read(
        [("flow.yaml", "apiVersion: flowmesh/v1\nmetadata: {name: x, owner: bob}\nspec: {taskType: echo}")]
    )
    assert any("belongs to the user who submits it" in str(each) for each in made.warnings)


def test_a_plan_is_made_of_the_stages_that_would_begin_at_once():
    text = HEAD + "spec: {taskType: echo, cores: 3, stages: [{name: a}, {name: b}]}"
    nodes = "nodes: [{name: n1, cores: 4}]"
    made = read([("flow.yaml", text)], cluster=[("cluster.yaml", nodes)])
    assert [(each.id, each.spec.groups[0].cores) for each in made.found] == [("ft:a", 3)]
    assert any("1 of its stages begin when others have completed" in str(each) for each in made.warnings)
    assert read([("flow.yaml", text)]).found == []
    assert read([("flow.yaml", text)], for_plan=True).found == [], (
        "a running cluster is asked about the whole"
    )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ('{command: ["${a.result.path}", -v]}', "in the place of the program"),
        (
            '{command: [true], cwd: "/data/${a.result.path}"}',
            "cwd: '/data/${a.result.path}' holds a reference",
        ),
    ],
)
def test_what_everybody_may_see_is_no_place_for_a_reference(spec: str, told: str):
    text = HEAD + f"spec: {{stages: [{{name: a, spec: {{command: [true]}}}}, {{name: b, spec: {spec}}}]}}"
    with pytest.raises(ManifestError) as refused:
        read([("flow.yaml", text.replace("[true]", '["true"]'))])
    assert refused.value.reason == "BadReference"
    assert told in refused.value.detail


@pytest.mark.parametrize(
    ("line", "right", "wrong"),
    [
        (9, "${a.result", "${nobody.result"),
        (10, "dependsOn: [a]", "dependsOn: [c]"),
        (11, "cores: 3", "cores: -3"),
        (13, "node: b", "node: c"),
        (14, "name: f", "name: a"),
    ],
)
def test_an_error_that_only_all_stages_show_has_the_line_of_its_stage(line: int, right: str, wrong: str):
    rows = [
        "spec:",
        "  graph:",
        "    nodes:",
        "      - name: a",
        "        spec: {command: [sleep]}",
        "      - {name: b, dependsOn: [a], spec: {command: [echo, '${a.result.x}']}}",
        "      - {name: c, dependsOn: [a], spec: {command: [echo]}}",
        "      - {name: d, spec: {command: [x], cores: 3}}",
        "      - name: e",
        "        spec: {command: [x], condition: {node: b, field: x, equals: 1}, dependsOn: [b]}",
        "      - {name: f, dependsOn: [a], spec: {command: [x]}}",
    ]
    text = HEAD + "\n".join(
        row.replace(right, wrong) if at == line else row for at, row in enumerate(rows, 4)
    )
    with pytest.raises(ManifestError) as caught:
        read([("flow.yaml", text)])
    assert caught.value.where == f"flow.yaml:{line}"


def test_a_circle_has_the_line_of_one_of_its_stages():
    text = (
        HEAD
        + "spec:\n  taskType: a\n  stages:\n    - name: x\n    - name: y\n      dependsOn: [z]\n    - name: z\n"
    )
    with pytest.raises(ManifestError, match="circle") as caught:
        read([("flow.yaml", text)])
    assert caught.value.where in {"flow.yaml:9", "flow.yaml:10"}
