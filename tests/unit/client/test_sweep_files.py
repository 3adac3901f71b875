"""Files of parameters: which signs may stand between the values of a CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.client.sweep_files import from_csv
from phalanx.errors import BadRequest


@pytest.mark.parametrize(
    "text", ["lr,seed\n0.1,1\n", "lr;seed\n0.1;1\n", "lr\tseed\n0.1\t1\n", '"lr";"seed"\r\n0.1;1\r\n']
)
def test_a_sign_that_no_name_has_may_stand_for_commas(tmp_path: Path, text: str):
    (tmp_path / "grid.csv").write_text(text)
    assert from_csv(str(tmp_path / "grid.csv")) == (["lr", "seed"], [["0.1", "1"]])


def test_names_with_commas_between_them_are_what_counts(tmp_path: Path):
    (tmp_path / "grid.csv").write_text("lr,text\n0.1,a;b\n")
    assert from_csv(str(tmp_path / "grid.csv")) == (["lr", "text"], [["0.1", "a;b"]])
    (tmp_path / "mixed.csv").write_text("lr,text;c\n0.1,a\n")
    with pytest.raises(BadRequest, match="'text;c' is not the name of a parameter"):
        from_csv(str(tmp_path / "mixed.csv"))
