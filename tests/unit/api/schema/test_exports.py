"""Which variables are exported, and what is said of those that cannot be."""

from __future__ import annotations

import pytest

from phalanx.api.schema.exports import accepted, check_exported, chosen, inside_image, is_exported, passed
from phalanx.errors import BadRequest

HERE = {
    "PATH": "/v/bin:/usr/bin",
    "VIRTUAL_ENV": "/v",
    "WANDB_API_KEY": "k",
    "TEXT": "two\nlines",
    "HOME": "/home/ada",
    "PHALANX_TOKEN": "t",
    "KRISHIV_ADDR": "a",
    "SSH_AUTH_SOCK": "/s",
    "CUDA_VISIBLE_DEVICES": "3",
    "RANK": "7",
    "SLURM_JOB_ID": "1",
    "BASH_FUNC_f%%": "() { :; }",
    "ODD": "caf\udce9",
}


def test_all_are_exported_but_those_of_a_session_an_account_or_another_task():
    found, odd = chosen("ALL", HERE)
    assert sorted(found) == ["PATH", "TEXT", "VIRTUAL_ENV", "WANDB_API_KEY"]
    assert found["TEXT"] == "two\nlines"
    assert odd == ["ODD"]


def test_none_and_names():
    assert chosen("NONE", HERE) == ({}, [])
    assert chosen("none", HERE) == ({}, [])
    assert chosen("WANDB_API_KEY, TEXT", HERE)[0] == {"WANDB_API_KEY": "k", "TEXT": "two\nlines"}
    assert chosen(["TEXT"], HERE)[0] == {"TEXT": "two\nlines"}
    assert chosen([], HERE) == ({}, [])


@pytest.mark.parametrize("export", ["NOT_SET", "HOME", "RANK", "ALL,TEXT", "A=1", "ODD"])
def test_what_cannot_be_exported_by_name_is_refused_by_name(export: str):
    with pytest.raises(BadRequest, match=export.partition("=")[0].partition(",")[0]):
        chosen(export, HERE)


def test_paths_and_virtual_environments_of_the_host_stay_out_of_an_image():
    assert sorted(chosen("ALL", HERE, in_image=True)[0]) == ["TEXT", "WANDB_API_KEY"]
    assert inside_image({"PATH": "/", "PYTHONPATH": "/", "LD_LIBRARY_PATH": "/", "WANDB_MODE": "off"}) == {
        "WANDB_MODE": "off"
    }


def test_what_the_operator_lists_is_not_accepted():
    never = ("WANDB_*", "TEXT")
    assert accepted({"WANDB_API_KEY": "k", "TEXT": "t", "TEXTS": "u", "RANK": "1"}, never) == {"TEXTS": "u"}
    assert not is_exported("WANDB_MODE", never=never)


def test_too_much_is_refused_with_the_name_of_the_longest():
    with pytest.raises(BadRequest, match="LONG"):
        check_exported({"A": "1", "LONG": "x" * 100_000} | {f"V{n}": "y" * 99_000 for n in range(12)})
    with pytest.raises(BadRequest, match="1001 variables"):
        check_exported({f"V{n}": "" for n in range(1001)})
    with pytest.raises(BadRequest, match="HUGE"):
        check_exported({"HUGE": "x" * (128 << 10)})
    with pytest.raises(BadRequest, match="NUL"):
        check_exported({"N": "a\0b"})


def test_a_variable_that_is_passed_has_to_be_set():
    assert passed("TEXT", HERE, "--env") == "two\nlines"
    with pytest.raises(BadRequest, match="'NOPE' is not set here"):
        passed("NOPE", HERE, "--env")
