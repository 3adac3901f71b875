"""Tags and selectors: what `ps -l` asks for."""

from __future__ import annotations

import pytest

from phalanx.api.schema.fields import TERMS_MAX, read_selector
from phalanx.core.model.job import is_tag
from phalanx.errors import BadRequest
from tests.support.builders import a_gang, a_group

JOB = a_gang(
    a_group(1, name="head", tags=(("role", "head"),)),
    a_group(2, name="work", tags=(("role", "worker"), ("app", "other"))),
    tags=(("app", "train"), ("pod-group.scheduling.sigs.k8s.io", "hello-job")),
)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", [0, 1]),
        ("pod-group.scheduling.sigs.k8s.io=hello-job", [0, 1]),
        ("role=head", [0]),
        ("role == head , app=train", [0]),
        ("app=train", [0]),  # a group's own tag wins over its job's
        ("app!=train", [1]),
        ("role", [0, 1]),
        ("!role", []),
        ("tier!=test", [0, 1]),
        ("!tier,role!=head", [1]),
        ("role=", []),
        ("role=nobody", []),
    ],
)
def test_a_selector_selects(text, groups):
    selector = read_selector(text)
    assert [number for number in (0, 1) if selector.selects_group(JOB, number)] == groups
    assert selector.selects(JOB) == bool(groups)


@pytest.mark.parametrize("text", ["a=b=c", "=x", "a,,b", "!a=b", "a in (b)", "a=b c", "a,", "a=\x1b[2J", "!"])
def test_what_is_no_selector_is_refused(text):
    with pytest.raises(BadRequest, match="is not a condition: write KEY=VALUE"):
        read_selector(text)


def test_a_selector_has_a_limit():
    with pytest.raises(BadRequest, match="too many"):
        read_selector(",".join(["a"] * (TERMS_MAX + 1)))


def test_what_may_be_a_tag():
    assert is_tag("app.kubernetes.io/name", "Train_1.0")
    assert is_tag("a", "")
    assert not any(
        is_tag(*pair) for pair in (("", "x"), ("a b", "x"), ("a", "x" * 64), ("a", "ü"), ("a", "b\n"))
    )
