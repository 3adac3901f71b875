"""Puts the pages of the site together: `python -m docs.site.stage FOLDER`.

The documents lie where readers of the repository look for them (`README.md`, `docs/`, `bench/`, beside the code);
on the site each has one place. Links between them are rewritten, what they link to besides pages is copied, and a
link to a file of the source becomes plain text. A link to nothing, and a page that `docs/index.md` does not name,
end the run. The navigation is the index page's own lists.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from docs.site import commands

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
ASSETS = (".json", ".yaml", ".svg", ".png", ".proto", ".service")
DECISIONS = "docs/decisions"


class BrokenLink(Exception):
    """A link that leads to nothing, with the page it stands on."""


def site_path(path: str) -> str:
    """Where on the site a file of the repository is: `docs/guides/x.md` is `guides/x.md`."""
    if path == DECISIONS:
        return "decisions/index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("bench/"):
        return "benchmarks/" + path.removeprefix("bench/").lower()
    if path.startswith("src/phalanx/"):
        return "internals/" + path.removeprefix("src/phalanx/").replace("/README", "").replace("/", "-")
    return "project/" + path.lower()


def pages(root: Path) -> dict[str, str]:
    """Every Markdown file of the documentation, with its place on the site."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("bench/*.md")]
    found += root.glob("src/phalanx/**/README.md")
    paths = sorted(path.relative_to(root).as_posix() for path in found)
    return {path: site_path(path) for path in [*paths, DECISIONS]}


def rewritten(text: str, page: str, known: dict[str, str], root: Path, assets: set[str]) -> str:
    """The text of a page with its links as the site needs them; `assets` gets the files to copy."""
    parts = CODE.split(text)
    return "".join(
        part if number % 2 else LINK.sub(lambda link: _rewritten(link, page, known, root, assets), part)
        for number, part in enumerate(parts)
    )


def _rewritten(link: re.Match[str], page: str, known: dict[str, str], root: Path, assets: set[str]) -> str:
    target, _, anchor = link["target"].partition("#")
    if not target or ELSEWHERE.match(target):
        return link[0]
    path = os.path.normpath(PurePosixPath(page).parent / target)
    if not (root / path).exists() and path not in known:
        raise BrokenLink(f"{page}: {link['target']} leads nowhere")
    if path not in known and not path.endswith(ASSETS):
        return link["text"]
    if path not in known:
        assets.add(path)
    place = os.path.relpath(site_path(path), PurePosixPath(site_path(page)).parent)
    return f"{link['image']}[{link['text']}]({place}{'#' + anchor if anchor else ''})"


def navigation(index: str) -> Iterator[tuple[str, list[str]]]:
    """The sections of the index page with the pages that each lists, as entries of a table of contents."""
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        listed = [(link["text"], link["target"]) for link in LINK.finditer(body)]
        entries = [
            f"{text} <{target.removesuffix('.md')}>" for text, target in listed if target.endswith(".md")
        ]
        yield title.strip(), entries


def with_navigation(index: str) -> str:
    """The index page with a tree for the side of every page, made of its own lists."""
    trees = [
        f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(listed) + "\n```\n"
        for title, listed in navigation(index)
    ]
    return index + "\n" + "\n".join(trees)


def decisions(root: Path) -> str:
    """A page that lists the decision records, newest last, and holds them in the navigation."""
    names = sorted(path.stem for path in (root / DECISIONS).glob("[0-9]*.md"))
    titles = [(root / DECISIONS / f"{name}.md").read_text().partition("\n")[0].strip("# ") for name in names]
    lines = [f"- [{title}]({name}.md)" for name, title in zip(names, titles, strict=True)]
    tree = "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"
    opening = (
        "Each record is a page: the context, the choice, what follows from it. Old records use old names;\n"
    )
    opening += "the [glossary](../glossary.md#former-names) has a table of them.\n"
    return f"# Decision records\n\n{opening}\n" + "\n".join(lines) + f"\n\n{tree}"


def stage(root: Path, target: Path) -> None:
    """Write every page and every file that pages link to under `target`."""
    known = pages(root) | {f"docs/{name}": name for name in commands.pages()}
    assets: set[str] = set()
    for path, place in known.items():
        if path == DECISIONS:
            text = decisions(root)
        elif path.startswith("docs/reference/commands/"):
            text = commands.pages()[place]
        else:
            text = rewritten((root / path).read_text(encoding="utf-8"), path, known, root, assets)
        if path == "docs/index.md":
            text = with_navigation(text)
        if path == "docs/reference/cli.md":
            text += commands.listing()
        _write(target / place, text)
    for path in assets:
        copy = target / site_path(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, copy)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        stage(ROOT, Path(sys.argv[1]))
    except BrokenLink as broken:
        sys.exit(str(broken))
