"""Files stay small, named by a noun, finished and candid, and links in the documents lead somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import ROOT, Source, a_tree, files, mentions, sources

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers"}
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E)\b")  # Spelled so that this line does not find itself.

# Where catching everything is right, and why.
BROAD_EXCEPT: dict[str, str] = {
    "src/phalanx/api/server/app.py": "what nobody foresaw is logged under an id and told without its insides",
    "src/phalanx/client/executor.py": "at the end of the program nothing is left to be told of an error",
    "src/phalanx/client/executor_futures.py": "an object that is unpickled may raise anything; its future says so",
    "src/phalanx/client/pickles.py": "an object that is pickled or unpickled may raise anything; its future says so",
    "src/phalanx/runner/health/background.py": "a thread hands it to the one that waits for it, which raises it",
    "src/phalanx/worker/call_process.py": "whatever a call raises is its result",
    "src/phalanx/cli/job_logs.py": "a thread hands it to the one that waits for it, which raises it",
    "src/phalanx/cli/split_logs.py": "a thread hands it to the one that waits for it, which raises it",
    "src/phalanx/coordinator/traces/exporter.py": "whatever OpenTelemetry raises concerns traces alone",
    "src/phalanx/coordinator/rpc_clients.py": "as app.py: what nobody foresaw is told without its insides",
    "src/phalanx/core/placement/engine.py": "whatever goes wrong with one job, the others are placed",
    "src/phalanx/runner/keeper/namespaces.py": "in a wrong namespace the keeper must not go on, whatever happens",
    "src/phalanx/runner/keeper/watchdog.py": "a forked copy of the keeper must not go on as one, whatever happens",
}
RUNNERS_OF_PROGRAMS = {"Popen", "run", "call", "check_call", "check_output"}
SHELLS = {"os.system", "os.popen", "asyncio.create_subprocess_shell", "subprocess.getoutput"}
SLEEPS = {"time.sleep"}
SLEEPS_IN_TESTS = SLEEPS | {"asyncio.sleep", "anyio.sleep"}
MAY_SLEEP = {"tests/support/waiting.py"}  # so that waiting has one place, and no other name
TASKS = {"tests/chaos/life.py"}  # a task of the rig, not a test: it runs without the rest of this tree

LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def missing_docstrings(found: tuple[Source, ...]) -> list[str]:
    return [
        source.at(1, "a module opens with what it is for and what it leaves to others")
        for source in found
        if source.tree.body and not ast.get_docstring(source.tree)
    ]


def oversized(found: tuple[Source, ...]) -> list[str]:
    return [violation for source in found for violation in _oversized(source)]


def _oversized(source: Source) -> Iterator[str]:
    if (lines := source.text.count("\n")) > FILE_LINES_MAX:
        yield source.at(lines, f"{lines} lines; over {FILE_LINES_MAX} a file is asking to become two nouns")
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield source.at(node.lineno, f"{node.name} has {lines} lines; at most {FUNCTION_LINES_MAX}")


def empty_names(found: tuple[Source, ...]) -> list[str]:
    return [
        source.at(1, "name the noun: this name says nothing")
        for source in found
        if EMPTY_NAMES & set(re.split(r"[/_.]", source.path))
    ]


def unfinished(found: tuple[Source, ...]) -> list[str]:
    return [
        source.at(number, "finish it, or write an issue")
        for source in found
        for number, line in enumerate(source.text.splitlines(), start=1)
        if UNFINISHED.search(line)
    ]


def broad_excepts(found: tuple[Source, ...]) -> list[str]:
    return [
        source.at(node.lineno, "say which errors, or give the reason in BROAD_EXCEPT")
        for source in found
        if source.path not in BROAD_EXCEPT
        for node in source.nodes
        if isinstance(node, ast.ExceptHandler | ast.Call) and _catches_everything(node)
    ]


def _catches_everything(node: ast.ExceptHandler | ast.Call) -> bool:
    caught: list[ast.expr] = []
    if isinstance(node, ast.ExceptHandler):
        if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
            return False  # it only cleans up on the way
        if node.type is None:
            return True
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    elif ast.unparse(node.func).split(".")[-1] == "suppress":
        caught = node.args
    return any(isinstance(each, ast.Name) and each.id in {"Exception", "BaseException"} for each in caught)


def shells(found: tuple[Source, ...]) -> list[str]:
    by_flag = [
        source.at(flag.value.lineno, "shell=True: pass a list of arguments instead")
        for source in found
        for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in RUNNERS_OF_PROGRAMS
        for flag in node.keywords
        if flag.arg == "shell"
        if not isinstance(flag.value, ast.Constant) or flag.value.value is True
    ]
    by_name = [
        source.at(line, f"{name} starts a shell: pass a list of arguments instead")
        for source in found
        for line, name in mentions(source)
        if name in SHELLS
    ]
    return by_flag + by_name


def sleeps(found: tuple[Source, ...]) -> list[str]:
    by_name = [
        source.at(line, f"{name}: wait for a condition or a timer, not for time to pass")
        for source in found
        if source.path not in MAY_SLEEP
        for line, name in mentions(source)
        if name in (SLEEPS_IN_TESTS if source.path.startswith("tests/") else SLEEPS)
    ]
    by_select = [
        source.at(node.lineno, "select on nothing is a sleep: use tests/support/waiting.py")
        for source in found
        if source.path.startswith("tests/") and source.path not in TASKS
        for node in source.nodes
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("select.select([], [], []")
    ]
    return by_name + by_select


def broken_links(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root).as_posix()}: {target} leads nowhere"
        for path in files(root, ".", ".md")
        for target in _relative_links(path.read_text(encoding="utf-8"))
        if target.startswith("/") or not (path.parent / target).exists()
    ]


def _relative_links(text: str) -> Iterator[str]:
    for inline, reference in LINK.findall(CODE.sub("", text)):
        target = (inline or reference).partition("#")[0]
        if target and not ELSEWHERE.match(target):
            yield target


def source_and_tests() -> tuple[Source, ...]:
    return sources(ROOT, "src") + sources(ROOT, "tests")


def test_every_module_says_what_it_is_for():
    assert missing_docstrings(sources(ROOT, "src")) == []


def test_files_and_functions_are_small():
    assert oversized(sources(ROOT, "src")) == []


def test_files_are_named_by_a_noun():
    assert empty_names(source_and_tests()) == []


def test_nothing_is_left_unfinished():
    assert unfinished(source_and_tests()) == []


def test_errors_are_caught_by_name():
    assert broad_excepts(sources(ROOT, "src")) == []


def test_no_shell_is_started():
    assert shells(source_and_tests()) == []


def test_nobody_sleeps():
    assert sleeps(source_and_tests()) == []


def test_links_in_documents_lead_somewhere():
    assert broken_links(ROOT) == []


def test_a_missing_docstring_is_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "src/a.py": "x = 1\n",
            "src/b.py": '"""For b."""\n',
            "src/c/__init__.py": "",
            "src/d/__init__.py": "y = 1\n",
        },
    )
    violations = missing_docstrings(sources(tmp_path, "src"))
    assert [line.split(":")[0] for line in violations] == ["src/a.py", "src/d/__init__.py"]


def test_a_long_file_and_a_long_function_are_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "src/a.py": "x = 1\n" * 401,
            "src/b.py": "def f():\n" + "    x = 1\n" * 60,
            "src/c.py": "x = 1\n" * 400,
        },
    )
    violations = oversized(sources(tmp_path, "src"))
    assert [line.split(":")[0] for line in violations] == ["src/a.py", "src/b.py"]


def test_a_name_that_says_nothing_is_seen(tmp_path: Path):
    a_tree(tmp_path, {"src/utils/a.py": "", "src/job_manager.py": "", "src/commons.py": ""})
    assert len(empty_names(sources(tmp_path, "src"))) == 2


def test_an_unfinished_mark_is_seen(tmp_path: Path):
    a_tree(tmp_path, {"src/a.py": "# TO" + "DO: later\n"})
    assert len(unfinished(sources(tmp_path, "src"))) == 1


def test_a_broad_except_is_seen_unless_it_gave_its_reason(tmp_path: Path):
    text = "try:\n    f()\nexcept (OSError, Exception):\n    pass\n"
    a_tree(tmp_path, {"src/a.py": text, "src/b.py": text.replace("(OSError, Exception)", "ValueError")})
    a_tree(
        tmp_path,
        {
            "src/c.py": text.replace(" (OSError, Exception)", ""),
            "src/d.py": "with suppress(Exception): f()\n",
        },
    )
    a_tree(tmp_path, {"src/phalanx/api/server/app.py": text})
    violations = broad_excepts(sources(tmp_path, "src"))
    assert [line.split(":")[0] for line in violations] == ["src/a.py", "src/c.py", "src/d.py"]


def test_a_shell_is_seen(tmp_path: Path):
    text = "import os\nrun('x', shell=True)\nrun(['x'], shell=False)\nos.system('x')\n"
    a_tree(tmp_path, {"src/a.py": text})
    assert [line.split(":")[1] for line in shells(sources(tmp_path, "src"))] == ["2", "4"]


def test_a_sleep_is_seen(tmp_path: Path):
    text = "import asyncio\nfrom time import sleep\nasync def f():\n    await asyncio.sleep(1)\n"
    a_tree(tmp_path, {"src/a.py": text, "tests/b.py": text})
    assert [line.split(": ")[0] for line in sleeps(sources(tmp_path, "src"))] == ["src/a.py:2"]
    assert [line.split(": ")[0] for line in sleeps(sources(tmp_path, "tests"))] == [
        "tests/b.py:2",
        "tests/b.py:4",
    ]


def test_a_sleep_by_another_name_is_seen_and_waiting_has_one_place(tmp_path: Path):
    text = "import select\nselect.select([], [], [], 1.0)\n"
    a_tree(tmp_path, {"tests/b.py": text, "tests/support/waiting.py": "import time\ntime.sleep(1)\n"})
    assert [line.split(": ")[0] for line in sleeps(sources(tmp_path, "tests"))] == ["tests/b.py:2"]


def test_a_broken_link_is_seen(tmp_path: Path):
    (tmp_path / "there.md").write_text("[up](#here) [web](https://example.org) `[code](gone.md)`\n")
    (tmp_path / "a.md").write_text("[yes](there.md#part) [no](gone.md)\n\n[ref]: also-gone.md\n")
    assert broken_links(tmp_path) == ["a.md: gone.md leads nowhere", "a.md: also-gone.md leads nowhere"]
