"""Names and ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.job import NAME_MAX, is_job_id, is_job_name, is_name, ulid
from phalanx.core.model.orders import key_from_text, key_text
from tests.support.builders import a_job

times = st.integers(0, (1 << 48) - 1)
chances = st.integers(0, (1 << 80) - 1)


@given(times, times, chances, chances)
def test_an_id_made_later_sorts_later(earlier: int, later: int, one: int, two: int) -> None:
    if earlier == later:
        one, two = sorted((one, two))
    elif earlier > later:
        earlier, later = later, earlier
    assert ulid(earlier, one) <= ulid(later, two)
    assert is_job_id(ulid(earlier, one))


@pytest.mark.parametrize("name", ["a", "n1", "gpu-01.rack_3", "0", "x" * NAME_MAX])
def test_a_good_name(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name", ["", "-rm", "a-", ".a", "A", "a b", "a\n", "a\x1b[31m", "é", "a:0", "x" * (NAME_MAX + 1), "a/b"]
)
def test_a_name_that_would_hurt_someone(name: str) -> None:
    assert not is_name(name)


def test_the_task_of_a_plain_job_shares_its_id_and_those_of_an_array_add_their_index() -> None:
    job, array = a_job(), a_job(array="5-9:2")
    assert job.task_id(0) == job.id
    assert [array.task_id(position) for position in range(array.tasks)] == [
        f"{array.id}.{i}" for i in (5, 7, 9)
    ]


def test_an_attempts_key_as_one_word() -> None:
    key = (ulid(1, 2), 3, 4)
    assert key_from_text(key_text(key)) == key


@pytest.mark.parametrize("name", ["gangA", "ResNet50_lr0.1", "a", "17a", "x.3", "lastly"])
def test_names_of_jobs_may_have_capitals(name: str):
    assert is_job_name(name)


@pytest.mark.parametrize("name", ["17", "17.3", "0", "last", "", "-a", "a-", "a b", "é", "x" * 64])
def test_what_names_a_job_otherwise_is_no_name_of_one(name: str):
    assert not is_job_name(name)
