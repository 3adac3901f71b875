"""The native job file, in YAML, JSON and TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.api.schema.groupspec import AfterSpec, GatherSpec
from phalanx.api.schema.jobspec import GangSpec, JobSpec, to_job
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.read import read

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


def the_job(text: str, file: str = "job.yaml") -> JobSpec:
    (job,) = read([(file, text)]).jobs
    return job


def refusal(text: str, file: str = "job.yaml") -> str:
    with pytest.raises(ManifestError) as caught:
        read([(file, text)])
    return caught.value.detail


def test_a_group_alone_may_stand_at_the_top():
    job = the_job("name: train\ncommand: [python, train.py]\ntasks: 4\ngpus: 8\nmemory: 64GiB\n")
    assert (job.name, job.groups[0].tasks, job.groups[0].gpus, job.groups[0].memory) == (
        "train",
        4,
        8,
        "64GiB",
    )
    assert job.groups[0].name == ""


def test_cores_may_be_written_as_kubernetes_writes_them():
    assert the_job("command: [x]\ncores: 500m\n").groups[0].cores == 0.5
    assert "cores: '0.5x' is text, give a number" in refusal("command: [x]\ncores: 0.5x\n")


def test_everything_a_job_file_can_say():
    job = the_job("""
name: train
priority: 100
queue: team-a
gang: {strict: false, match: only-waiting, wait: 10m, affinity: exp-1}
gather: [{layer: rack, must: true}, {layer: block, multiple: 4}]
groups:
  - {name: ps, command: [ps]}
  - name: worker
    tasks: 16
    min: 12
    shell: python train.py
    cores: 8
    env: {LR: "0.1", OMP_NUM_THREADS: 8}
    labels: {disk: ssd}
    after: [{group: ps, when: started}]
restart: {whole: true, limit: 3, rules: [{action: fail, reasons: [oom]}]}
success: {any: true, groups: [worker]}
time_limit: 1:30:00
grace: 30s
preemption: never
evictable: false
min_run: 5m
""")
    assert job.gang == GangSpec(False, "only-waiting", "10m", "exp-1")
    assert job.gather == [GatherSpec("rack", True), GatherSpec("block", False, 4)]
    assert job.groups[1].after == [AfterSpec("ps")]
    assert job.groups[1].env == {"LR": "0.1", "OMP_NUM_THREADS": "8"}
    made = to_job(job, id="1", now=0, user="ada", default_retries=3)
    assert (made.time_limit_s, made.grace_s, made.min_run_s, made.may_evict) == (5400, 30, 300, False)


def test_json_and_toml_say_the_same():
    text = '{"name": "a", "command": ["x"], "tasks": 2, "gang": true}'
    toml = 'name = "a"\ncommand = ["x"]\ntasks = 2\ngang = true\n'
    assert the_job(text, "a.json") == the_job(toml, "a.toml") == the_job(text)


def test_several_documents_and_files_are_several_jobs():
    made = read([("a.yaml", "command: [a]\n---\ncommand: [b]\n"), ("b.yaml", "command: [c]\n")])
    assert [job.groups[0].command for job in made.jobs] == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("command: [x]\ntaks: 3\n", 2, "unknown key 'taks', did you mean 'tasks'?"),
        ("groups:\n  - command: [x]\n    gpu: 1\n", 3, "groups[0]: unknown key 'gpu', did you mean 'gpus'?"),
        ("command: [x]\ngang: {mach: x}\n", 2, "gang: unknown key 'mach', did you mean 'match'?"),
        (
            "command: [x]\ngang: true\ngather:\n- layr: x\n",
            4,
            "gather[0]: unknown key 'layr', did you mean 'layer'?",
        ),
        ("command: [x]\nrestart:\n  rules:\n  - {actio: x}\n", 4, "did you mean 'action'?"),
        ("command: [x]\nsuccess: {group: [a]}\n", 2, "did you mean 'groups'?"),
        ("groups:\n- {command: [x], name: a}\ntasks: 3\n", 3, "with groups it belongs in each of them"),
        ("command: python train.py\n", 1, 'give a list such as ["python", "train.py"], or the same'),
        ("command: [x]\n\ntasks: many\n", 3, "tasks: 'many' is text, give a whole number"),
        ("command: [x]\ntasks: 2\nmin: 3\ngang: true\n", 3, "min: 3 is above tasks, which is 2"),
        ("command: [x]\ntasks: 0\n", 2, "tasks: 0 is out of range"),
        ("command: [x]\ngang: yes\n", 2, "gang: "),
        ("name: x\ncommand: [x]\ngraph: {nodes: []}\n", 3, "graph: is of a workflow, not of a job"),
        ("name: x\ncommand: [x]\ndependsOn: [a]\n", 3, "dependsOn: is of a workflow"),
        ("groups: 3\n", 1, "is not a list of groups"),
        ("groups: []\n", 1, "there is none"),
        ("tasks: 3\n", 1, "nothing to run"),
        ("command: [x]\nenv:\n  B: b\n  A: 1.5\n", 4, "env['A']: 1.5 is a number, give text"),
        ("name: x\ncommand: [x]\nshell: x\n", 3, "shell: given beside command"),
        ("command: [x]\ngang: true\ngather: [{layer: a}, {layer: a}]\n", 3, "named twice"),
        ("command: [x]\ngang: true\ngather: rack:mus\n", 3, "gather: 'rack:mus' is not a rule"),
        ("name: 12\ncommand: [x]\n", 1, "name: '12' is not a name: it means a job or task by its number"),
        ("command: [x]\nmax_attempts: 3\n", 2, "'max_attempts': write max_retries, one less"),
        ("command: [x]\nmemory: 10\n", 2, "memory: 10 without a unit is 10 bytes"),
        ("command: [x]\narray: 4-1\n", 2, "job.yaml:2: array: '4-1': '4-1' ends before it begins"),
        (
            "groups:\n- {name: b, command: [x]}\n- {name: a, command: [x], after: [b]}\n",
            3,
            'groups[1].after[0]: \'b\' is text, give an object such as {"group": "b"} (optional: when: started or',
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, told: str):
    detail = refusal(text)
    assert detail.startswith(f"job.yaml:{line}: ")
    assert told in detail


def test_what_can_mean_one_thing_may_be_written_shorter():
    job = the_job(
        "command: [x]\ntasks: 2\ngang: true\ngather: rack:must\nafter: 17\nnodes: n1\nexclude: n2\nname: 12a\n"
    )
    assert (job.gather, job.after) == ([GatherSpec("rack", must=True)], ["17"])
    assert (job.groups[0].nodes, job.groups[0].exclude) == (["n1"], ["n2"])
    assert the_job("command: [x]\nafter: [17, '18:any']\n").after == ["17", "18:any"]


def test_a_job_that_names_its_nodes_is_no_cluster_file():
    assert the_job("command: [x]\nnodes: [n1, n2]\n").groups[0].nodes == ["n1", "n2"]
    assert the_job("shell: x\nnodes: [n1]\n").groups[0].nodes == ["n1"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("nam: x\ncomand: [x]\ngang: {mach: x}\n", [1, 2, 3]),
        ("name: [x]\ncommand: x\nmemory: [1]\ntasks: 3\n", [1, 2, 3]),
        ("groups:\n- {command: [x], gpu: 1}\n- {command: [x], cpus: 1}\n", [2, 3]),
        ("groups:\n- {command: x}\n- {command: [x], gpus: many}\nhold: 1\n", [4, 2, 3]),
        ("command: x\n---\ncommand: [x]\ngpus: many\n", [1, 4]),
    ],
)
def test_all_keys_and_types_that_are_wrong_are_told_at_once(text: str, lines: list[int]):
    with pytest.raises(ManifestError) as caught:
        read([("job.yaml", text)])
    found = [caught.value, *caught.value.others]
    assert sorted(each.where for each in found) == sorted(f"job.yaml:{line}" for line in lines)


def test_keys_that_only_programs_set_are_not_told_as_known():
    known = refusal("command: [x]\nxyzzy: 1\n").partition("known are: ")[2].rstrip(")").split(", ")
    assert ("command" in known, {*known} & {"applied", "draft", "object", "objects", "indexes"}) == (
        True,
        set(),
    )


@pytest.mark.parametrize("text", ["", "---\n", "# only words\n"])
def test_a_file_without_a_document_is_refused(text: str):
    assert "there is nothing in it" in refusal(text)


def test_a_file_may_declare_layers_and_quotas():
    made = read(
        [
            (
                "a.yaml",
                "topology: [{layer: rack, labels: [phalanx/rack]}]\nqueues: {default: {gpus: 8, memory: 1TiB}}\n",
            )
        ]
    )
    assert made.topology is not None
    assert made.topology.names() == ["cluster", "rack", "node"]
    assert (made.queues["default"].gpus, made.queues["default"].memory_bytes) == (8, 2**40)
    assert made.jobs == []


def test_layers_of_the_same_file_are_checked():
    text = "topology: [{layer: rack}]\n---\ncommand: [x]\ngang: true\ngather: [{layer: Rack, must: true}]\n"
    assert read([("a.yaml", text)]).jobs[0].gather == [GatherSpec("rack", True)]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_can_be_read(path: Path):
    text = path.read_text(encoding="utf-8")
    made = (
        read([], cluster=[(path.name, text)])
        if path.stem.startswith("cluster")
        else read([(path.name, text)])
    )
    assert made.jobs or made.cluster or made.topology


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Deployment\nmetadata: {name: a}\n", "'Deployment' cannot be read; supported are Pod"),
        (
            "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g}\n",
            "is not read, only that of",
        ),
        ("kind: 7\n", "7 is not a kind"),
        ("nodes: [{name: n1}]\n", "give this file with --cluster"),
    ],
)
def test_other_kinds_are_refused(text: str, why: str):
    assert why in refusal(text)


def test_what_stands_beside_work_is_told():
    made = read([("a.yaml", "kind: Service\nmetadata: {name: s}\n---\ncommand: [x]\n")])
    assert [str(each) for each in made.warnings] == [
        "a.yaml:1: Service default/s: kind: 'Service': is not read"
    ]


def test_a_gang_that_is_too_large_is_refused_with_its_line():
    said = refusal("name: train\ngang: true\ncommand: [train]\ntasks: 10001\n")
    assert said.startswith("job.yaml:4: job train: tasks: 10001 tasks are too many for a gang")


def test_a_word_that_is_unknown_is_answered_with_those_that_are_known():
    said = refusal("name: a\ncommand: [x]\nrestart:\n  rules:\n    - {action: explode}\n")
    assert "restart.rules[0].action: 'explode' is not one of: fail, restart," in said


@pytest.mark.parametrize("text", ["name: {0}\ncommand: [x]\n", "kind: {0}\n", "kind: Pod\napiVersion: {0}\n"])
def test_an_error_does_not_repeat_a_value_of_any_length(text: str):
    assert len(refusal(text.format("x" * 100_000))) < 1000


def test_retries_may_be_called_as_on_the_command_line():
    assert the_job("command: [x]\nretries: 5\n").max_retries == 5
    assert "retries" in refusal("command: [x]\nretries: 5\nmax_retries: 4\n")
