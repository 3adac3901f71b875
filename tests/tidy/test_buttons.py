"""Each button of the dashboard is pressed by a test in a browser: buttons of ui/src against clicks of tests/browser."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import ROOT, a_tree

PRESSES = {"click", "press", "dblclick"}
HELPERS = {"press", "in_dialog", "confirm"}  # functions of these tests whose last word names a button
ROLES = {"button", "tab"}
ANY = "\0"  # what stands for an expression within a name
PATTERN = "pattern "  # before a pattern of names
# Buttons whose name is no word of their source: a name that a test presses.
NAMED_BY_DATA = {
    "components/Confirm.svelte": "Go back",  # its other one has the names of `action`
    "components/Tabs.svelte": "Story",
    "components/Table.svelte": "Name",
    "pages/jobs/Page.svelte": "Failed",
    "pages/job/Why.svelte": "Resume n1",
    "pages/job/Members.svelte": f"{ANY}.0",  # the number of a task
    "pages/job/Usage.svelte": f"{ANY}.0",
    "pages/map/Legend.svelte": "gang.*4",
    "pages/map/Page.svelte": "cluster",
    "pages/map/Domains.svelte": "r2",
    "pages/workflow/Page.svelte": "first",
}


def buttons(text: str) -> Iterator[str]:
    """The names of the buttons of a page, each with its choices; ANY for what is not a word of the source."""
    for found in re.finditer(r"<button\b", text):
        end = _end_of_tag(text, found.end())
        label = re.search(r'aria-label="([^"]*)"', text[found.end() : end])
        inner = text[end + 1 : text.index("</button", end)]
        yield from choices(label[1] if label else re.sub(r"<[^>]*>|\{[#:/@][^}]*\}", " ", inner))
    yield from re.findall(r'<Confirm\b[^>]*?\baction="([^"{]+)"', text)


def _end_of_tag(text: str, at: int) -> int:
    """Where a tag ends: an expression in braces may hold `=>`."""
    depth = 0
    while depth or text[at] != ">":
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at


def choices(name: str) -> list[str]:
    """`{a ? 'Follow' : 'End'}` is two names; another expression is ANY."""
    found = [""]
    for part in re.split(r"(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})", name):
        words = [part]
        if part.startswith("{"):
            literals = re.findall(r"[?:]\s*[`']([^`']*)[`']", part)
            words = [re.sub(r"\$\{[^}]*\}", ANY, each) for each in literals] or [ANY]
        found = [before + each for before in found for each in words]
    return [" ".join(each.split()) for each in found]


def pressed(source: str) -> set[str]:
    """The names, or patterns of names, that a test presses."""
    found = set()
    for function in [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef)]:
        known = _parameters(function)
        for each in ast.walk(function):
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                known[each.targets[0].id] = each.value
        for call in [each for each in ast.walk(function) if isinstance(each, ast.Call)]:
            if isinstance(call.func, ast.Name) and call.func.id in HELPERS and len(call.args) > 1:
                last = call.args[-1]
                found |= _words(known.get(last.id, last) if isinstance(last, ast.Name) else last)
            elif isinstance(call.func, ast.Attribute) and call.func.attr in PRESSES:
                found |= _name_of(call.func.value, known)
    return found


def _parameters(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """What `@pytest.mark.parametrize("name", [...])` puts in the place of a name."""
    marks = [each for each in function.decorator_list if isinstance(each, ast.Call) and len(each.args) == 2]
    return {str(mark.args[0].value): mark.args[1] for mark in marks if isinstance(mark.args[0], ast.Constant)}


def _name_of(what: ast.expr | None, known: dict[str, ast.expr]) -> set[str]:
    """The name that the locator on which is pressed was found by."""
    while what is not None:
        if isinstance(what, ast.Call) and isinstance(what.func, ast.Attribute):
            role = what.args[0] if what.func.attr == "get_by_role" and what.args else None
            if isinstance(role, ast.Constant) and role.value in ROLES:
                return set().union(*(_words(each.value) for each in what.keywords if each.arg == "name"))
            what = what.func.value
        elif isinstance(what, ast.Attribute):
            what = what.value
        elif isinstance(what, ast.Name):
            what, known = known.get(what.id), {}
        else:
            return set()
    return set()


def _words(node: ast.expr) -> set[str]:
    if isinstance(node, ast.Call) and node.args:  # re.compile
        return {f"{PATTERN}{word}" for word in _words(node.args[0])}
    if isinstance(node, ast.List):  # of parameters
        return set().union(*map(_words, node.elts))
    if isinstance(node, ast.JoinedStr):
        return {"".join(str(each.value) if isinstance(each, ast.Constant) else ANY for each in node.values)}
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def is_pressed(name: str, names: set[str]) -> bool:
    """Whether one of these is the name, or could be with data in the place of ANY."""
    alike = re.compile(".*".join(map(re.escape, name.split(ANY))).replace(r"\ .*", ".*"))
    plain = name.replace(ANY, "0")
    patterns = [each.removeprefix(PATTERN) for each in names if each.startswith(PATTERN)]
    return any(map(alike.fullmatch, names)) or any(re.search(each, plain) for each in patterns)


def unpressed(root: Path, named_by_data: dict[str, str]) -> list[str]:
    """The buttons that no test presses, as file and name."""
    names = set().union(*(pressed(path.read_text()) for path in root.glob("tests/browser/test_*.py")))
    missing = []
    for path in sorted((root / "ui/src").rglob("*.ts")):  # of fixes, which a page asks for by `actionOf`
        titles = re.findall(r"\btitle: ['`]([^'`]+)['`],\s*does:", path.read_text())
        shown = [re.sub(r"\$\{[^}]*\}", ANY, title) for title in titles]
        missing += [f"{path.name}: {title}" for title in shown if not is_pressed(title, names)]
    for path in sorted((root / "ui/src").rglob("*.svelte")):
        page = path.relative_to(root / "ui/src").as_posix()
        for name in buttons(path.read_text()):
            has_word = re.search(r"\w", name) is not None
            known = name if has_word else named_by_data.get(page, name)
            if not is_pressed(known, names):
                missing.append(f"{page}: {known.replace(ANY, '…')}")
    return missing


def test_each_button_is_pressed_by_a_test_in_a_browser():
    assert unpressed(ROOT, NAMED_BY_DATA) == []


def test_a_button_that_no_test_presses_is_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "ui/src/a.svelte": """
                <button class="plain" onclick={() => go()} aria-label="Zoom in">+</button>
                <button onclick={() => (open = 'x')}>{isOn ? 'Resume' : 'Pause'}</button>
                <button onclick={() => void go()}>Retry {job.tasks > 1 ? plural(failed) : ''}</button>
                <button>Only looked at</button><button>Other</button><button>Found before</button>
                <Confirm title="Sure?" action="Delete it" run={go}>x</Confirm>""",
            "ui/src/b.svelte": "<button>{data}</button>",
            "tests/browser/test_a.py": """
def test(page):
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name=re.compile("Resu")).first.click()
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("button", name="Only looked at").wait_for()
    found = page.get_by_role("listitem").get_by_role("button", name="Found before")
    found.nth(1).click()
    confirm(page, "Delete it")
@pytest.mark.parametrize("each", ["One", "Other"])
def test_each(page, each):
    confirm(page, each)
""",
        },
    )
    assert unpressed(tmp_path, {"b.svelte": "of data"}) == [
        "a.svelte: Pause", "a.svelte: Only looked at", "b.svelte: of data",
    ]  # fmt: skip
