"""Attempts that stand alone: what is made once for all of them gives each the same variables as making all for each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from phalanx.core.model.job import Command
from phalanx.core.model.orders import Brief, Start
from phalanx.core.model.resources import Capacity, Device, Grant
from phalanx.runner.environment import Peer, attempt_environment, standing
from phalanx.runner.lone_environment import OF_ONE, LoneEnvironments

HERE = Peer("n1", "10.0.0.1")
CAPACITY = Capacity(8, 0, devices=tuple(Device(at, "h100", uuid=f"GPU-{at}") for at in range(4)))
ONE_CORE = Grant(1, 0)
GIVEN = (
    "MASTER_PORT",
    "JOB_INDEX",
    "PET_RDZV_ID",
    "PET_NNODES",
    "RANK",
    "PHALANX_HOSTNAME",
    "TMPDIR",
    "OTHER",
)


def a_brief(env: dict[str, str] | None = None, **more: Any) -> Brief:
    command = Command(("/bin/true",), env or {})
    return Brief("j1", 0, command, "Train_It", "default", "j1", 12, None, 5.0, None, **more)


def a_start(position: int, number: int = 1, grant: Grant = ONE_CORE, **more: Any) -> Start:
    fields = {"index": None, "restarts": number - 1} | more
    return Start(("j1", position, number), 1, grant, **fields)


def in_full(brief: Brief, start: Start, port: int, here: Peer = HERE, epoch: int = 7) -> dict[str, str]:
    place = standing(start, brief, None, here, port)
    return attempt_environment(brief, start, place, CAPACITY, epoch)


def whole_of(environments: LoneEnvironments, *given: Any) -> dict[str, str]:
    """What an attempt shares with others, and its own, of which none is in both."""
    shared, own = environments.of(*given)
    assert shared.env.keys().isdisjoint(own)
    return shared.env | own


starts = st.builds(
    a_start,
    st.integers(2, 11),
    st.integers(1, 3),
    st.sampled_from(
        [
            Grant(1, 0),
            Grant(0.5, 1 << 20),
            Grant(2, 0, (1,)),
            Grant(2, 0, (0, 3)),
            Grant(1, 0, numa=1),
        ]
    ),
    index=st.none() | st.integers(0, 99),
    merged=st.sampled_from(["", "[1,2]"]),
)


@given(
    st.lists(st.tuples(starts, st.integers(25_000, 29_999)), min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(GIVEN), st.just("theirs")),
    st.sampled_from([(12, 1), (12, 3), (10, 2)]),
    st.sampled_from([HERE, Peer("n1", "fe80::1")]),
)
def test_each_attempt_has_the_variables_that_it_would_have_by_itself(
    attempts: list[tuple[Start, int]], env: dict[str, str], shape: tuple[int, int], here: Peer
):
    brief = a_brief(env, group_first=2, group_tasks=shape[0], replicas=shape[1])
    environments = LoneEnvironments()
    for start, port in attempts:
        made = whole_of(environments, brief, start, port, here, CAPACITY, 7)
        assert made == in_full(brief, start, port, here)


@pytest.mark.parametrize("what", ["brief", "address", "capacity", "epoch"])
def test_what_changes_for_all_of_them_is_made_anew(what: str):
    brief, environments = a_brief(group_tasks=12), LoneEnvironments()
    whole_of(environments, brief, a_start(0), 25_000, HERE, CAPACITY, 7)
    here, epoch, capacity = HERE, 7, CAPACITY
    if what == "brief":
        brief = structs.replace(brief, group_tasks=6)
    elif what == "address":
        here = Peer("n1", "10.0.0.2")
    elif what == "epoch":
        epoch = 8
    start = a_start(1, grant=Grant(1, 0, (0,)))
    if what == "capacity":
        capacity = structs.replace(CAPACITY, devices=(Device(0, "h100", uuid="GPU-new"),))
        whole_of(environments, brief, start, 25_001, HERE, CAPACITY, 7)
    made = whole_of(environments, brief, start, 25_001, here, capacity, epoch)
    place = standing(start, brief, None, here, 25_001)
    assert made == attempt_environment(brief, start, place, capacity, epoch)


def test_none_has_what_another_was_given():
    brief, environments = a_brief(group_tasks=12), LoneEnvironments()
    first = whole_of(environments, brief, a_start(0, index=5, merged="[1]"), 25_000, HERE, CAPACITY, 7)
    first["PHALANX_RESULT"] = "/of/the/first"
    second = whole_of(environments, brief, a_start(1), 25_001, HERE, CAPACITY, 7)
    assert "PHALANX_RESULT" not in second
    assert not {"PHALANX_ARRAY_INDEX", "PHALANX_MERGED"} & second.keys()
    assert {name for name in second if second[name] != first[name]} <= OF_ONE


def test_a_brief_is_known_by_what_it_says():
    """A runner that starts anew must not replace one that attempts of its former life still wait with."""
    brief, environments = a_brief(group_tasks=12), LoneEnvironments()
    one, _ = environments.of(brief, a_start(0), 25_000, HERE, CAPACITY, 7)
    same, _ = LoneEnvironments().of(brief, a_start(3), 25_001, HERE, CAPACITY, 7)
    other, _ = LoneEnvironments().of(brief, a_start(0, grant=Grant(1, 0, (1,))), 25_000, HERE, CAPACITY, 7)
    assert one.brief_id == same.brief_id != other.brief_id
