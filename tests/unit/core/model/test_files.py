"""Names in the place for files: what is refused, and that every name leads back to its file."""

from __future__ import annotations

import pytest

from phalanx.core.model.files import FileKey, folder_of, read_name, why_bad_path
from phalanx.core.model.job import ulid

JOB = ulid(1_700_000_000_000, 7)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "..", "a/../b", "a//b", "a/", "./a", "a\nb", "a\0b", "a\x7fb", "\udc80", "x" * 201,
     "a/" * 32 + "a", "é" * 300, "#" * 67],
)  # fmt: skip
def test_a_path_that_could_lead_elsewhere_is_refused(path: str):
    assert why_bad_path(path).startswith("path ")
    with pytest.raises(ValueError, match="path"):
        _ = FileKey((JOB, 0, 1), "artifacts", path).name


@pytest.mark.parametrize("path", ["a", "a/b.txt", "..a", "a..", "100%#\\", "%25%23", "ü", "x" * 200])
def test_a_name_leads_back_to_its_file(path: str):
    key = FileKey((JOB, 12, 3), "artifacts", path)
    assert key.name.startswith(f"{JOB[:5]}/{JOB}/12.3/artifacts/")
    assert read_name(key.name) == key


def test_other_names_are_no_files_of_ours():
    for name in (
        "a",
        f"{JOB[:5]}/{JOB}/1.1/other/x",
        f"00000/{JOB}/1.1/stdout/0",
        f"{JOB[:5]}/{JOB}/1/stdout/0",
    ):
        assert read_name(name) is None


def test_a_folder_is_of_a_job_a_position_and_a_number():
    assert folder_of((JOB, 0, 1)) == f"{JOB[:5]}/{JOB}/0.1/"
    for wrong in (("../x", 0, 1), (JOB, -1, 1), (JOB, 0, 1 << 60)):
        with pytest.raises(ValueError, match=r"not a job id|out of range"):
            folder_of(wrong)
