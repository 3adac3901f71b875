"""Which taints a toleration covers."""

from __future__ import annotations

import pytest

from phalanx.manifests.taints import Taint, Toleration, untolerated

TAINT = Taint("gpu", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration("gpu", "Exists"), True),
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "yes"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("gpu", "Exists", effect="NoSchedule"), True),
        (Toleration("gpu", "Exists", effect="NoExecute"), False),
    ],
)
def test_what_a_toleration_covers(toleration: Toleration, covers: bool):
    assert toleration.covers(TAINT) is covers


def test_every_taint_has_to_be_covered():
    assert untolerated([TAINT, Taint("x")], [Toleration("gpu", "Exists")]) == [Taint("x")]
    assert str(TAINT) == "gpu=yes:NoSchedule"
