"""Variables that must not act on a program with root's rights: how they come to the task all the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from phalanx.runner.keeper.later import given_back, hold_back, is_early, set_later

SETPRIV = "/usr/bin/setpriv"


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH"]
)
def test_what_a_loader_or_libc_reads_is_early(name: str) -> None:
    assert is_early(name)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LANG", "OLD_PWD", "CUDA_VISIBLE_DEVICES", "LD_a-b", "LD_\u00e4"]
)
def test_others_are_not(name: str) -> None:
    assert not is_early(name)


def test_without_such_a_variable_nothing_changes() -> None:
    env = {"PATH": "/bin", "LATER_0": "x"}
    assert set_later(SETPRIV, "/bin/true", env) == ([], env)


@pytest.mark.parametrize("folder", ["plain", "with=sign"])
def test_the_program_has_its_environment_to_the_letter_and_no_value_is_in_a_command(
    tmp_path: Path, folder: str
) -> None:
    program = tmp_path / folder / "env"  # a shell would leave out what it cannot name
    program.parent.mkdir()
    shutil.copy("/usr/bin/env", program)
    env = {
        "PATH": "/usr/bin:/bin",
        "LD_LIBRARY_PATH": "/a b:${PATH} 'c' \"d\" \\n\n#e",
        "LANGUAGE": "",
        "LATER_0": "the job's own",
        "a.b": "kept",
    }
    words, begin = set_later(SETPRIV, str(program), env)
    assert not any(is_early(name) for name in begin)
    assert not any("/a b" in word for word in words)
    said = subprocess.run(
        [*words, str(program), "-0"], env=begin, capture_output=True, check=True
    ).stdout.decode()
    found = dict(line.partition("=")[::2] for line in said.split("\0") if line)
    assert {name: found.get(name) for name in env} == env
    assert not [name for name in found if name.startswith("LATER_") and name not in env]


def test_a_program_of_ours_that_is_root_has_no_variable_of_the_job():
    """PATH too would lead to programs of the user's, which libraries look for when they are loaded."""
    env = {"LD_PRELOAD": "/tmp/evil.so", "PATH": "/tmp/evil", "OPENSSL_CONF": "/tmp/evil.cnf", "HOME": "/"}
    begin = hold_back(env | {"PHALANX_NODE": "n1"})
    assert all(name.startswith("PHALANX_") for name in begin)
    assert begin["PHALANX_NODE"] == "n1"
    assert given_back(begin | {"LC_CTYPE": "C.UTF-8"}) == env | {"PHALANX_NODE": "n1"}
    assert given_back({"HOME": "/"}) == {"HOME": "/"}
