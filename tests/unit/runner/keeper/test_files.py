"""Folders for artifacts are made and taken again; what an attempt has left is told by bits."""

from __future__ import annotations

from pathlib import Path

from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.runner.keeper.files import ARTIFACTS, RESULT, SCRATCH, STDERR, STDOUT, LeftFiles


def an_attempt(folder: Path, number: int = 0) -> KeptAttempt:
    attempt = KeptAttempt(
        f"j/{number}/1",
        {
            "out": f"{folder}/{number}.out",
            "err": f"{folder}/{number}.err",
            "result": f"{folder}/results/{number}.result",
            "artifacts": f"{folder}/results/{number}.artifacts",
        },
    )
    for path in (attempt.out, attempt.err):
        Path(path).touch()
    return attempt


def test_a_task_that_leaves_nothing(tmp_path: Path) -> None:
    files, attempt = LeftFiles(), an_attempt(tmp_path)
    files.make(attempt)
    assert Path(attempt.artifacts).stat().st_mode & 0o777 == 0o700
    assert files.left(attempt) == 0


def test_every_kind_of_file_is_seen(tmp_path: Path) -> None:
    files, attempt = LeftFiles(), an_attempt(tmp_path)
    files.make(attempt)
    for path, bit in (
        (attempt.out, STDOUT),
        (attempt.err, STDERR),
        (attempt.result, RESULT),
        (f"{attempt.artifacts}/model", ARTIFACTS),
    ):
        before = files.left(attempt) if bit != ARTIFACTS else STDOUT | STDERR | RESULT
        Path(path).write_text("x")
        assert files.left(attempt) == before | bit


def test_a_log_that_a_task_has_replaced_is_looked_at(tmp_path: Path) -> None:
    files, attempt = LeftFiles(), an_attempt(tmp_path)
    Path(attempt.out).unlink()
    Path(attempt.err).unlink()
    Path(attempt.err).symlink_to(tmp_path)
    assert files.left(attempt) == STDOUT | STDERR


def test_an_unused_folder_is_taken_again(tmp_path: Path) -> None:
    files = LeftFiles()
    first, second, third = (an_attempt(tmp_path, number) for number in range(3))
    files.make(first)
    inode = Path(first.artifacts).stat().st_ino
    assert files.left(first) == 0
    files.make(second)
    assert Path(second.artifacts).stat().st_ino == inode and not Path(first.artifacts).exists()
    (Path(second.artifacts) / "model").touch()
    assert files.left(second) == ARTIFACTS
    files.make(third)
    assert Path(third.artifacts).stat().st_ino != inode


def test_a_folder_that_a_task_has_changed_is_not_taken_again(tmp_path: Path) -> None:
    files, attempts = LeftFiles(), [an_attempt(tmp_path, number) for number in range(4)]
    for attempt in attempts[:3]:
        files.make(attempt)
    folders = [Path(attempt.artifacts) for attempt in attempts]
    folders[0].chmod(0o777)
    folders[1].rmdir()
    folders[2].rmdir()
    folders[2].symlink_to(tmp_path)
    assert [files.left(attempt) for attempt in attempts[:3]] == [0, 0, 0]
    files.make(attempts[3])
    assert folders[0].exists() and folders[2].is_symlink()
    assert folders[3].stat().st_mode & 0o777 == 0o700


def test_what_is_in_the_way_of_a_folder_is_set_aside(tmp_path: Path) -> None:
    files, attempt = LeftFiles(), an_attempt(tmp_path)
    (tmp_path / "results").mkdir()
    Path(attempt.artifacts).write_text("planted")
    files.make(attempt)
    assert Path(attempt.artifacts).is_dir()


def test_a_scratch_folder_is_taken_again_or_told_to_be_removed(tmp_path: Path) -> None:
    def with_scratch(number: int) -> KeptAttempt:
        attempt = an_attempt(tmp_path, number)
        attempt.scratch = f"{tmp_path}/scratch-{number}"
        return attempt

    files, attempts = LeftFiles(), [with_scratch(number) for number in range(5)]
    for attempt in attempts[:4]:
        files.make(attempt)
    folders = [Path(attempt.scratch) for attempt in attempts]
    (folders[1] / "file").touch()
    folders[2].rmdir()
    folders[2].symlink_to("/etc")
    folders[3].chmod(0o777)
    assert [files.left(attempt) for attempt in attempts[:4]] == [0, SCRATCH, SCRATCH, SCRATCH]
    files.make(attempts[4])
    assert folders[4].is_dir() and not folders[4].is_symlink()


def test_what_is_put_into_a_folder_that_was_taken_again_is_seen(tmp_path: Path) -> None:
    files = LeftFiles()
    first, second, third, fourth = (an_attempt(tmp_path, number) for number in range(4))
    files.make(first)
    assert files.left(first) == 0
    files.make(second)
    (Path(second.artifacts) / "passing").touch()
    (Path(second.artifacts) / "passing").unlink()
    assert files.left(second) == 0  # it was changed, and is empty again
    files.make(third)
    assert Path(third.artifacts).stat().st_ino and not Path(second.artifacts).exists()
    (Path(third.artifacts) / "model").touch()
    assert files.left(third) == ARTIFACTS
    files.make(fourth)
    (Path(fourth.artifacts) / "folder").mkdir()
    assert files.left(fourth) == ARTIFACTS


def test_a_folder_with_the_result_in_it_is_not_given_to_another(tmp_path: Path) -> None:
    files, first, second = LeftFiles(), an_attempt(tmp_path), an_attempt(tmp_path, 1)
    first.result = f"{first.artifacts}/.result"
    files.make(first)
    Path(first.result).write_text("1")
    assert files.left(first) == RESULT
    files.make(second)
    assert Path(first.result).read_text() == "1" and not any(Path(second.artifacts).iterdir())


def test_a_folder_is_taken_again_for_one_beside_it(tmp_path: Path):
    files = LeftFiles()
    inodes: list[dict[str, int]] = []
    for number in range(2):
        kept = KeptAttempt(f"j/{number}/1", {
            "out": "o", "err": "o",
            "artifacts": f"{tmp_path}/results/{number}", "scratch": f"{tmp_path}/scratch/{number}",
        })  # fmt: skip
        files.make(kept)
        inodes.append({path: Path(path).stat().st_ino for path in (kept.artifacts, kept.scratch)})
        assert files.close(kept) == 0
    assert [*inodes[0].values()] == [*inodes[1].values()]
