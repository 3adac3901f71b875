"""Artifacts that are not there: what may have been meant."""

from __future__ import annotations

import pytest

from phalanx.coordinator.attempt_files import missing_hint
from phalanx.core.model.files import Artifact, Manifest


@pytest.mark.parametrize(
    ("path", "is_folder"),
    [("out", True), ("out/", True), ("out/deep", True), ("ou", False), ("a.txt", False)],
)
def test_a_folder_is_copied_with_r(path: str, is_folder: bool):
    manifest = Manifest((Artifact("out/deep/a.txt", 1, "0" * 64),))
    assert ("cp -r j:out" in missing_hint("j", path, manifest)) == is_folder
