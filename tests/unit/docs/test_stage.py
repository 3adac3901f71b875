"""Pages take their places on the site, their links follow, and what is broken ends the build."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site import check, commands, stage
from tests.tidy.source import a_tree


def a_repository(root: Path, **texts: str) -> Path:
    a_tree(
        root,
        {
            "docs/index.md": "# Docs\n",
            "docs/reference/cli.md": "# CLI\n",
            "docs/decisions/0001-a.md": "# A\n",
        },
    )
    a_tree(root, {path.replace("__", "/") + ".md": text for path, text in texts.items()})
    return root


def staged(root: Path, page: str) -> str:
    stage.stage(root, root / "out")
    return (root / "out" / page).read_text()


def test_a_link_leads_to_the_page_of_the_site(tmp_path: Path):
    root = a_repository(
        tmp_path, README="See [a](docs/guides/a.md#x).\n", docs__guides__a="# A\n\n[up](../../README.md)\n"
    )
    assert staged(root, "project/readme.md") == "See [a](../guides/a.md#x).\n"
    assert staged(root, "guides/a.md").endswith("[up](../project/readme.md)\n")


def test_a_file_of_the_source_is_named_and_not_linked(tmp_path: Path):
    root = a_repository(tmp_path, README="See [the script](scripts/x), `[code](gone.md)`.\n")
    a_tree(root, {"scripts/x": ""})
    assert staged(root, "project/readme.md") == "See the script, `[code](gone.md)`.\n"


def test_an_example_is_copied(tmp_path: Path):
    root = a_repository(tmp_path, docs__guides__a="[job](../examples/job.yaml)\n")
    a_tree(root, {"docs/examples/job.yaml": "name: x\n"})
    assert staged(root, "guides/a.md") == "[job](../examples/job.yaml)\n"
    assert (root / "out/examples/job.yaml").read_text() == "name: x\n"


def test_a_link_to_nothing_ends_the_build(tmp_path: Path):
    with pytest.raises(stage.BrokenLink, match=r"README.md: gone.md leads nowhere"):
        staged(a_repository(tmp_path, README="[x](gone.md)\n"), "project/readme.md")


def test_the_navigation_is_the_index_pages_own():
    index = "# T\n\n## Guides\n\n- [One](guides/a.md): text\n\n## Project\n\n- [Two](project/b.md), [api](x.json)\n"
    assert list(stage.navigation(index)) == [
        ("Guides", ["One <guides/a>"]),
        ("Project", ["Two <project/b>"]),
    ]


def test_every_command_has_a_page_and_a_man_page():
    page = commands.pages()["reference/commands/submit.md"]
    assert "`phalanx submit [OPTIONS] [CMD...]`" in page and "- `--gpus <int>`: " in page
    assert "The same as [`phalanx nodes`](nodes.md)" in commands.pages()["reference/commands/node.md"]
    assert len(commands.manuals()) == len(commands.pages())


def test_the_built_site_is_checked(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "a.html": '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>'
            '<script src="https://cdn.example.org/x.js"></script><a href="https://example.org">4</a>',
            "b.html": '<h1 id="there">B</h1>',
        },
    )
    assert check.complaints(tmp_path) == [
        "a.html: loads https://cdn.example.org/x.js",
        "a.html: b.html#gone leads nowhere",
        "a.html: c.html leads nowhere",
    ]
