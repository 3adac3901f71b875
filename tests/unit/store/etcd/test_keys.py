"""Keys, records and groups of a store in etcd: their order, their damage, their limits."""

from __future__ import annotations

import grpc  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.store.etcd.errors import translated
from phalanx.store.etcd.fence import grouped
from phalanx.store.etcd.keys import EtcdKeys, after_prefix
from phalanx.store.etcd.kv import EtcdRefused, EtcdUnavailable, Put
from phalanx.store.etcd.records import (
    OPERATIONS_MAX,
    PART_BYTES,
    Damaged,
    LogRecord,
    Parted,
    sealed,
    unsealed,
)
from phalanx.store.protocol import StoreError

KEYS = EtcdKeys("/a/b/")
jobs = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)


@given(st.lists(jobs, unique=True))
def test_records_of_jobs_stand_newest_first(names: list[str]):
    assert sorted(names, key=KEYS.history) == sorted(names, reverse=True)
    assert [KEYS.job_of(KEYS.history(name)) for name in names] == names


@given(jobs, jobs)
def test_a_prefix_of_ids_is_a_range_of_keys(prefix: str, job: str):
    begin = KEYS.history_begin(prefix)
    assert (begin <= KEYS.history(job) < after_prefix(begin)) == job.startswith(prefix)


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_keys_of_revisions_stand_in_their_order(one: int, two: int):
    assert (KEYS.log(one) < KEYS.log(two)) == (one < two)
    assert KEYS.revision_of(KEYS.log(one)) == one
    assert KEYS.log(one) < KEYS.log_end


def test_all_keys_stand_under_the_prefix():
    assert {KEYS.log(1)[:4], KEYS.history("j")[:4], KEYS.index(3, 1)[:4], KEYS.epoch[:4]} == {b"a/b/"}


@given(st.binary(max_size=2000), st.data())
def test_a_record_comes_back_and_no_bit_of_it_may_change(body: bytes, data: st.DataObject):
    record = LogRecord(7, 6, ("j1", "n1"), body)
    value = sealed(record)
    assert unsealed(value, LogRecord, Parted) == record
    at = data.draw(st.integers(0, len(value) - 1))
    for damaged in (value[:at] + bytes((value[at] ^ 1,)) + value[at + 1 :], value[:at]):
        with pytest.raises(Damaged):
            unsealed(damaged, LogRecord, Parted)


@given(st.lists(st.sampled_from([1] * 50 + [500, PART_BYTES // 3, PART_BYTES]), min_size=150, max_size=300))
def test_a_group_fits_into_one_request(sizes: list[int]):
    blob = bytes(PART_BYTES)
    puts = [Put(b"%d" % at, blob[:size]) for at, size in enumerate(sizes)]
    groups = list(grouped(puts))
    assert [put for group in groups for put in group] == puts
    assert all(len(group) <= OPERATIONS_MAX < 128 for group in groups)
    assert all(sum(len(put.value) for put in group if isinstance(put, Put)) < 3 << 19 for group in groups)


def said(code: grpc.StatusCode, details: str) -> StoreError:
    metadata = grpc.aio.Metadata()
    return translated(grpc.aio.AioRpcError(code, metadata, metadata, details), "h1:2379")


def test_what_etcd_says_is_told_with_what_to_do():
    code = grpc.StatusCode
    full = said(code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
    assert isinstance(full, EtcdRefused)
    assert "h1:2379" in str(full) and "NOSPACE" in str(full) and "alarm disarm" in str(full)
    large = said(code.INVALID_ARGUMENT, "etcdserver: request is too large")
    assert isinstance(large, EtcdRefused) and "--max-request-bytes" in str(large)
    denied = said(code.PERMISSION_DENIED, "etcdserver: permission denied")
    assert isinstance(denied, EtcdRefused) and "whole prefix" in str(denied)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: leader changed"),
        (grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
        (grpc.StatusCode.UNKNOWN, "who knows"),
    ],
)
def test_what_is_not_an_answer_leaves_it_open_what_happened(code: grpc.StatusCode, details: str):
    assert isinstance(said(code, details), EtcdUnavailable)
