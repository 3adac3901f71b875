"""The audit: appended, limited, put aside, and read from its end (S13)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.api.schema.cluster import AuditLine
from phalanx.coordinator.audit import REFUSALS_AT_ONCE, AuditFile
from phalanx.errors import ConfigError
from tests.support.clocks import ManualClock


def test_the_audit_is_appended_for_us_alone_and_read_from_its_end(tmp_path: Path):
    file, clock = tmp_path / "in" / "audit.jsonl", ManualClock()
    for name in ("a", "b"):
        audit = AuditFile(file, clock)
        audit.note(AuditLine(name=name, method="POST", route="/v1/jobs", status=202))
        audit.close()
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    audit = AuditFile(file, clock)
    assert [line.name for line in audit.tail(10)] == ["a", "b"]
    assert [line.name for line in audit.tail(1)] == ["b"]


@pytest.mark.parametrize("status", [401, 403, 429])
def test_refusals_are_limited_and_counted_and_changes_are_not(tmp_path: Path, status: int):
    clock = ManualClock()
    audit = AuditFile(tmp_path / "audit.jsonl", clock)
    for _ in range(1000):
        audit.note(AuditLine(status=status))
    for _ in range(200):
        audit.note(AuditLine(status=202))
    found = audit.tail(5000)
    assert len(found) == REFUSALS_AT_ONCE + 200
    assert sum(line.left_out for line in found) == 1000 - REFUSALS_AT_ONCE
    clock.at += 5
    audit.note(AuditLine(status=403))
    assert len(audit.tail(5000)) == REFUSALS_AT_ONCE + 201


def test_a_large_audit_is_put_aside_and_nothing_is_deleted(tmp_path: Path):
    audit = AuditFile(tmp_path / "audit.jsonl", ManualClock(), bytes_max=1000)
    for number in range(100):
        audit.note(AuditLine(id=str(number), status=200))
    asides = sorted(path.name for path in tmp_path.glob("audit.jsonl.*"))
    assert len(asides) == 3
    assert [line.id for line in audit.tail(1000)] == [str(number) for number in range(100)]
    assert [line.id for line in audit.tail(30)] == [str(number) for number in range(70, 100)]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.glob("audit.jsonl*"))


def test_an_audit_that_cannot_be_written_ends_the_start(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="audit_file"):
        AuditFile(tmp_path / "link", ManualClock())
    assert not os.path.lexists(tmp_path / "elsewhere")
