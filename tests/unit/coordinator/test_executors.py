"""The file of executors: what each line means, and which lines are refused at start."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.coordinator.executors import read_executors
from phalanx.errors import ConfigError


def declared(folder: Path, line: str) -> Path:
    file = folder / "executors.toml"
    file.write_text(f"[executors]\n{line}\n")
    return file


def test_a_function_has_a_folder_a_python_and_an_environment(tmp_path):
    line = "sft = { run = 'training.sft:run', cwd = '/srv/flows', python = '/srv/py', env = { HF_HOME = '/hf' } }"
    program = read_executors(declared(tmp_path, line))["sft"]
    assert (program.argv[:2], program.argv[3:]) == (["/srv/py", "-c"], ["training.sft:run", "", "/srv/flows"])
    assert (program.cwd, program.env, program.merges) == ("/srv/flows", {"HF_HOME": "/hf"}, False)


def test_a_command_has_a_folder_and_an_environment(tmp_path):
    line = "sft = { run = ['./train', '-v'], cwd = '/srv/flows', env = { A = 'b' } }"
    program = read_executors(declared(tmp_path, line))["sft"]
    assert (program.argv, program.cwd, program.env) == (["./train", "-v"], "/srv/flows", {"A": "b"})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("run = 'a:b', cwd = 'flows'", "cwd: 'flows' is not an absolute path"),
        ("run = 'a:b', cwd = 3", r"Expected `str \| null`, got `int` - at `\$\.cwd`"),
        ("run = 'a:b', cdw = '/srv'", "unknown field `cdw`"),
        ("cwd = '/srv'", "missing required field `run`"),
        (
            "run = 'a:b', python = './venv/bin/python'",
            r"python = '\./venv/bin/python': expected an absolute path",
        ),
        ("run = 'a:b', python = ''", "python = ''"),
        ("run = ['a'], python = '/usr/bin/python3'", "python: only functions have it"),
        ("run = 'a:b', env = { N = 3 }", r"Expected `str`, got `int` - at `\$\.env"),
        ("run = 'a:b', env = { 'A=B' = 'c' }", "is not a variable name"),
        (
            "run = 'a:b', env = { PHALANX_SPEC = '{}' }",
            "env.PHALANX_SPEC: variables that begin with PHALANX_",
        ),
        ("run = 'a:b', python = 'python3 -O'", "python = 'python3 -O': expected .* without options"),
        (r'run = "a:b", python = "/srv\u0000py"', "python: .*NUL"),
        (r'run = ["a", "b\u0000c"]', "run: .*NUL"),
        ("run = 'a b'", "expected a command as a list of words, or a function"),
    ],
)
def test_what_is_wrong_is_named_at_start(tmp_path, fields, said):
    with pytest.raises(ConfigError, match=said) as caught:
        read_executors(declared(tmp_path, f"sft = {{ {fields} }}"))
    assert "executors.sft" in str(caught.value)
