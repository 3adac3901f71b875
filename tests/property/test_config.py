"""Whatever is in variables, flags and files: settings come out, or a ConfigError, and nothing else."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.config import load
from phalanx.errors import ConfigError
from phalanx.settings import KEYS, VARIABLES
from phalanx.settings_aliases import ALIASES

pytestmark = pytest.mark.timeout(600)  # the nightly profile takes its time

NAMES = st.one_of(
    st.sampled_from([*VARIABLES, *ALIASES]),
    st.text(st.characters(blacklist_characters="=\0", blacklist_categories=["Cs"])).map("PHALANX_{}".format),
)
TEXTS = st.one_of(
    st.text(st.characters(blacklist_characters="\0")),
    st.sampled_from(
        ["7433", "30s", "1e9", "nan", "-1", "64MiB", "::1", "http://h:1", "~x/y", "٣", "²", " 1 "]
    ),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TOML_VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.booleans().map(lambda each: str(each).lower()),
    st.text(st.characters(codec="ascii", blacklist_characters="'\n\r")).map("'{}'".format),
    st.sampled_from(["[]", "{}", "['a', 'b']", "2026-11-15", "0x" + "f" * 5000, "'''\n\n'''", "9" * 5000]),
)


def loads(
    flags: dict[str, object] | None = None, env: dict[str, str] | None = None, file: str | None = None
) -> None:
    """Load, and accept a ConfigError as an answer."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        if file is not None:
            (folder / "phalanx.toml").write_text(file, encoding="utf-8", errors="replace")
        try:
            settings = load(flags, environment={"HOME": name} | (env or {}), folder=folder, system=folder)
        except ConfigError:
            return
        is_here = settings.coordinator.bind.startswith(("127.", "::1", "localhost"))
        assert is_here or settings.coordinator.tls_cert_file


@given(st.dictionaries(NAMES, TEXTS, max_size=6))
def test_any_variables(env: dict[str, str]):
    loads(env=env)


@given(st.dictionaries(st.sampled_from([*KEYS]), VALUES, max_size=6))
def test_any_flags(flags: dict[str, object]):
    loads(flags=flags)


@given(st.dictionaries(st.sampled_from([*KEYS]), TOML_VALUES, max_size=6))
def test_any_values_in_a_file(values: dict[str, str]):
    loads(file="".join(f"{key} = {value}\n" for key, value in values.items()))


@given(st.text())
def test_any_file(text: str):
    loads(file=text)


@given(st.integers(min_value=1, max_value=65535), st.integers(min_value=1, max_value=65535))
def test_a_value_that_is_right_arrives_from_everywhere(port: int, link: int):
    with TemporaryDirectory() as name:
        folder = Path(name)
        if port == link:
            return
        words = {"coordinator.port": port, "coordinator.link_port": link}
        env = {KEYS[key].variable: str(value) for key, value in words.items()}
        by_flag = load(words, environment={}, folder=folder, system=folder)
        by_variable = load(environment=env, folder=folder, system=folder)
        (folder / "phalanx.toml").write_text(f"[coordinator]\nport = {port}\nlink_port = {link}\n")
        by_file = load(environment={}, folder=folder, system=folder)
        assert by_flag.coordinator == by_variable.coordinator == by_file.coordinator
