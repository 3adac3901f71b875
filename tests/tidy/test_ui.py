"""Sources of the dashboard: text of users is never markup, the browser keeps nothing, nothing loads from elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.tidy.source import ROOT, a_tree

FORBIDDEN = {
    r"\{@html": "sets markup",
    r"\b(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|DOMParser|setHTMLUnsafe": "sets markup",
    r"\beval\(|new Function\(|javascript:": "runs text",
    r"<[a-zA-Z][^>]*\sstyle=[\"'](?!\{)": "has an inline style; style:name={value} is set by CSSOM",
    r"sessionStorage|indexedDB|document\.cookie": "keeps something in the browser",
    r"https?://": "names an address",
}
# The theme is the only thing that is kept, and what stands in a comment or a namespace is asked of nobody.
KEEPS = "ui/src/lib/theme.svelte.ts"
HARMLESS = re.compile(r"http://www\.w3\.org/\S+|https://HOST\S*|https://svelte\.dev/\S+")
LINES_MAX = 400


def complaints(root: Path) -> list[str]:
    """What no source of a page may have."""
    found = []
    for path in sorted((root / "ui/src").rglob("*")):
        if path.suffix not in (".svelte", ".ts", ".css") or path.name.endswith((".test.ts", "schema.d.ts")):
            continue
        name, text = path.relative_to(root).as_posix(), HARMLESS.sub("", path.read_text(encoding="utf-8"))
        found += [f"{name}: {why}" for pattern, why in FORBIDDEN.items() if re.search(pattern, text)]
        if "localStorage" in text and name != KEEPS:
            found.append(f"{name}: keeps something in the browser")
        if text.count("\n") > LINES_MAX:
            found.append(f"{name}: has more than {LINES_MAX} lines")
    return found


def unrouted(root: Path) -> set[str]:
    """Folders of pages that no line of the table leads to, and lines that lead nowhere; the login stands before all."""
    named = set(
        re.findall(r"import\('\./pages/([\w-]+)/Page\.svelte'\)", (root / "ui/src/routes.ts").read_text())
    )
    return named ^ ({path.parent.name for path in root.glob("ui/src/pages/*/Page.svelte")} - {"login"})


def test_sources_of_the_dashboard_keep_the_rules():
    assert complaints(ROOT) == []


def test_every_page_has_a_route():
    assert unrouted(ROOT) == set()


def test_the_lock_file_names_no_registry_and_has_a_hash_of_everything():
    packages = json.loads((ROOT / "ui/package-lock.json").read_text())["packages"]
    fetched = [each for name, each in packages.items() if name]
    assert [name for name, each in packages.items() if "resolved" in each] == []
    assert all(each.get("integrity", "").startswith("sha512-") for each in fetched)


def test_what_breaks_the_rules_is_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "ui/src/a.svelte": "{@html name}",
            "ui/src/b.svelte": '<p class="x" style="color: red">',
            "ui/src/c.ts": "localStorage.setItem('token', token); fetch('https://elsewhere.example')",
            "ui/src/fine.svelte": "<p style:color={colour}>{name}</p>",
            "ui/src/routes.ts": "load: () => import('./pages/gone/Page.svelte')",
            "ui/src/pages/there/Page.svelte": "",
        },
    )
    assert [each.partition(":")[0] for each in complaints(tmp_path)] == [
        "ui/src/a.svelte", "ui/src/b.svelte", "ui/src/c.ts", "ui/src/c.ts",
    ]  # fmt: skip
    assert unrouted(tmp_path) == {"gone", "there"}
