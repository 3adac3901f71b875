"""Documents from text: what is read, its lines, and what is refused."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import pytest

from phalanx.manifests import load as loading
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.load import Map, load


def documents(text: str, file: str = "a.yaml") -> list[dict[str, Any]]:
    return [document.content for document in load(file, text)]


def refusal(text: str, file: str = "a.yaml") -> str:
    with pytest.raises(ManifestError) as caught:
        load(file, text)
    return caught.value.detail


def test_a_file_may_hold_several_documents_and_empty_ones_are_left_out():
    assert documents("a: 1\n---\n---\n# nothing\n---\nb: 2\n...\n") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("kind", ["List", "PodList", "nodelist"])
def test_lists_of_objects_are_taken_apart(kind: str):
    assert documents(f"kind: {kind}\nitems:\n- a: 1\n- kind: List\n  items: [{{b: 2}}]\n") == [
        {"a": 1},
        {"b": 2},
    ]


def test_a_list_at_the_top_is_taken_apart():
    assert documents("- a: 1\n- b: 2\n") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("12:30:00", "12:30:00"),
        ("2025-09-17T08:41:35Z", "2025-09-17T08:41:35Z"),
        ("1_000", "1_000"),
        ("true", True),
        ("~", None),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("!!float 5", 5),
        ("1.2.3", "1.2.3"),
    ],
)
def test_words_follow_yaml_1_2(text: str, value: object):
    assert documents(f"a: {text}") == [{"a": value}]


def test_every_key_and_member_knows_its_line():
    (document,) = load("a.yaml", "a: 1\nb:\n  - x\n  - c: 2\n")
    assert document.where == "a.yaml:1"
    assert document.content.lines == {"a": 1, "b": 2}
    assert document.content["b"].lines == [3, 4]


def test_anchors_and_merge_keys_are_read():
    text = "base: &b {x: 1, y: 2}\none: *b\ntwo:\n  <<: *b\n  y: 3\n"
    assert documents(text)[0]["two"] == {"x": 1, "y": 3}


def test_an_anchor_ends_with_its_document():
    assert "names nothing" in refusal("a: &x 1\n---\nb: *x\n")


def test_json_is_read_by_its_name_or_by_its_first_sign():
    assert documents('{"a": [1, {"b": null}]}', "a.json") == [{"a": [1, {"b": None}]}]
    assert documents('\n {"a": 1}', "-") == [{"a": 1}]


def test_yaml_that_begins_like_json_is_read_as_yaml():
    assert documents("{a: 1}") == [{"a": 1}]


def test_toml_is_read_by_its_name():
    text = 'name = "train"\n[[groups]]\ntasks = 2\nday = 2026-01-01\n'
    assert documents(text, "job.toml") == [{"name": "train", "groups": [{"tasks": 2, "day": "2026-01-01"}]}]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a: 1\na: 2", 2, "appears twice, first on line 1"),
        ("a: !foo 1", 1, "'!foo' is unknown"),
        ("a: !!python/name:os.system x", 1, "is unknown"),
        ("a: !!binary x", 1, "is unknown"),
        ("a: !!int x", 1, "not what its tag"),
        ("\na: [", 3, "not YAML"),
        ("a: &a [*a]", 1, "inside of what it names"),
        ("? [a]\n: 1", 1, "plain text"),
        ("a: b: c", 1, "text with ': ' in it needs quotes"),
        ("a:\n  b: 1\n c: 2\n", 3, "the indentation is wrong here or above"),
        ("a:\n\tb: 1\n", 2, "indent with spaces"),
        ("a: 1\n\tb: 1\n", 2, "indented with a tab: YAML takes spaces alone"),
        ('a: 1\nb: "x\nc: 1\n', 2, "no closing quote"),
        ("a: " + "9" * 500, 1, "too long"),
        ("x:\n- <<: [1]\n", 2, "takes a mapping"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, line: int, why: str):
    detail = refusal(text)
    assert detail.startswith(f"a.yaml:{line}: ")
    assert why in detail


@pytest.mark.parametrize(
    "text", ["- " * 100 + "x", "[" * 100_000, '{"a":' * 100 + "1" + "}" * 100, "[" * 100 + "]" * 100]
)
def test_what_is_nested_too_deep_is_refused(text: str):
    assert "nested too deep, at most 64 levels" in refusal(text)


def test_depth_is_refused_in_toml_too():
    assert "deep" in refusal("a = " + "[" * 80 + "]" * 80, "a.toml")


def test_aliases_cannot_repeat_for_ever():
    names = "abcdefghi"
    laughs = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise(names)
    )
    assert "aliases repeat too much" in refusal(laughs)


@pytest.mark.parametrize(("file", "text"), [("a.json", '{"a": 1, "a": 2}'), ("-", '{"a": {"b": 1, "b": 2}}')])
def test_a_key_that_stands_twice_in_json_is_refused(file: str, text: str):
    assert "appears twice" in refusal(text, file)


@pytest.mark.parametrize(
    ("file", "text"), [("a.json", "{a: 1}"), ("a.json", '{"a": NaN}'), ("a.toml", "a = ")]
)
def test_what_is_not_json_or_toml_is_refused(file: str, text: str):
    assert "this is not" in refusal(text, file)


@pytest.mark.parametrize("text", ["x", "1", "'a: 1'"])
def test_a_document_is_a_mapping(text: str):
    assert "not a document" in refusal(text)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.yaml", "a: \ud800"),
        ("a.yaml", 'a: "\\ud800"'),
        ("a.json", '{"a": "\\ud800"}'),
        ("a.toml", 'a = "\\ud800"'),
    ],
)
def test_text_that_utf8_cannot_spell_is_refused(file: str, text: str):
    assert refusal(text, file)


def test_a_character_in_two_escapes_is_one():
    assert documents('{"a": "\\ud83d\\ude00"}', "a.json") == [{"a": "\U0001f600"}]


def test_size_is_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loading, "BYTES_MAX", 10)
    assert "bytes are too many" in refusal("a: 1234567890")


@pytest.mark.parametrize(
    "text", ["a: 1\n---\nb: 2", "- a: 1\n- b: 2\n", '[{"a": 1}, {"b": 2}]', "--- \n" * 5]
)
def test_the_number_of_documents_is_limited(text: str):
    with pytest.raises(ManifestError, match="too many documents, at most 1 are read"):
        load("a.yaml", text, most=1)


def test_maps_without_lines_share_nothing_that_can_be_written():
    assert Map().lines == {}
    assert load("a.json", '{"a": 1}')[0].where == "a.json"


def test_a_key_that_stands_twice_in_a_large_object_is_found_at_once():
    text = "{" + "".join(f'"k{number}": 1, ' for number in range(30_000)) + '"k29999": 2}'
    begun = time.process_time()
    assert "'k29999' appears twice" in refusal(text, "a.json")
    assert time.process_time() - begun < 3.0, (
        "it takes half a minute if every key is compared with every other"
    )


@pytest.mark.parametrize(
    "text",
    [
        "%TAG !x! a\n" * 50_000 + "---\na: 1\n",
        "%TAG !x! a\r\n# a comment\r\n\r\n" * 20_000,
        "a: 1\n...\n" + "%FOO\n \n" * 17 + "---\nb: 1\n",
    ],
)
def test_many_directives_are_refused_before_they_are_compared(text: str):
    """Each is compared with all before it, with the whole process held: a megabyte of them took ten seconds."""
    assert "more than 16 lines begin with %" in refusal(text)


def test_a_few_directives_and_percent_signs_in_text_are_read():
    text = "%YAML 1.2\n---\na: |\n" + "  %\n" * 100 + "b: 1\n...\n%YAML 1.2\n---\nc: 1\n"
    assert documents(text)[1] == {"c": 1}


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 100_000) + " = 1",
        "[" + " . ".join(["a"] * 500) + "]\nb = 1",
        "[[" + ".".join(['"a"'] * 500) + "]]",
        "x = {" + ".".join(["'a'"] * 500) + " = 1}",
    ],
)
def test_a_toml_key_of_many_parts_is_refused_before_they_are_looked_up(text: str):
    assert "a key of more than 64 parts" in refusal(text, "a.toml")


def test_dotted_keys_of_toml_are_read():
    assert documents('a.b."c.d" = "' + "1." * 30 + '"\n', "a.toml") == [{"a": {"b": {"c.d": "1." * 30}}}]
