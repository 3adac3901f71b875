"""Only `apply` changes the state, and only a draft changes what placement sees, which it puts back.

A function holds a piece of the state if a parameter says so by its type, if it reaches it from a name or an attribute
called `state` (or `nodes`, `tenants`, `queues`, `waiting`, `ledgers` of a draft or snapshot), or from something that
it holds already. Whoever holds a piece may read it. Assignments to it, and calls of methods that change it, are for
`core/cluster/apply`, for `apply` itself in `transitions.py` and for `draft.py`; `image.py` builds the state that
it gives back. Which methods change their object is read from the classes themselves. What a plan and a decision
really leave behind is asked in `tests/simulation`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import ROOT, Source, a_tree, sources

CORE = "src/phalanx/core/"
ALLOWED = (f"{CORE}cluster/apply/", f"{CORE}cluster/image.py", f"{CORE}placement/draft.py")
ALLOWED_FUNCTIONS = {f"{CORE}cluster/transitions.py": {"apply", "apply_batch"}}
ELSEWHERE = (
    f"{CORE}model/",
    f"{CORE}runner/",
    "src/phalanx/runner/",
    "src/phalanx/link/",
    "src/phalanx/client/",
    "src/phalanx/cli/",
)
STATE_CLASSES = frozenset((
    "Attempt", "ClusterState", "Columns", "Condition", "Formation", "GangState", "GroupState", "JobState", "Keyring",
    "Lane", "Ledger", "NodeState", "NodeTable", "Promise", "Queues", "RequestIds", "Snapshot", "Tenants",
    "Waiting", "WaitingClass",
))  # fmt: skip
STATE_NAMES = frozenset({"state", "_state"})
SEEN_NAMES = frozenset({"ledgers", "nodes", "queues", "tenants", "waiting"})  # of a draft or a snapshot
OF_CONTAINERS = frozenset((
    "add", "append", "clear", "difference_update", "discard", "extend", "insert", "intersection_update", "pop",
    "popitem", "remove", "reverse", "setdefault", "sort", "update",
))  # fmt: skip
OF_HEAPS = frozenset({"heapify", "heappop", "heappush", "insort"})
COPIES = frozenset((
    "amounts", "assuming", "changed", "copied", "copy", "free_of", "tolist", "with_queue", "with_quotas",
    "with_topology",
))  # fmt: skip
ONE_OF = frozenset({"max", "min", "next"})
ALL_OF = frozenset(
    {"enumerate", "filter", "iter", "list", "reversed", "sorted", "zip"}
)  # new, of the same elements
REMEMBERED = frozenset({"devices", "labelled", "of_kind"})  # columns are drawn when they are first asked for


def changers(found: tuple[Source, ...]) -> frozenset[str]:
    """The methods of the state's classes that change their object, by name."""
    methods = [
        node
        for source in found
        if source.path.startswith(CORE)
        for owner in source.nodes
        if isinstance(owner, ast.ClassDef) and owner.name in STATE_CLASSES
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and node.name != "__init__" and node.name not in REMEMBERED
    ]
    known: frozenset[str] = frozenset()
    while True:
        changing = known | OF_CONTAINERS
        more = {node.name for node in methods if any(_changes(node, {"self"}, frozenset(), changing))}
        if more <= known:
            return frozenset(name for name in known if not name.startswith("__"))
        known |= more


def state_changes(found: tuple[Source, ...]) -> list[str]:
    """Where a piece of the state is changed that is only held."""
    changing = changers(found) | OF_CONTAINERS
    return [
        source.at(line, f"changes the state: {what}")
        for source in found
        if source.path.startswith("src/") and not source.path.startswith((*ALLOWED, *ELSEWHERE))
        for line, what in _in_file(source, changing)
    ]


def _in_file(source: Source, changing: frozenset[str]) -> Iterator[tuple[int, str]]:
    reached = STATE_NAMES | (
        SEEN_NAMES if source.path.startswith((f"{CORE}placement", f"{CORE}explain")) else set()
    )
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and node.name not in STATE_CLASSES:
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            own = {name for each in methods for name in _kept(each, frozenset(reached))}
            for each in methods:
                yield from _changes(each, _parameters(each), frozenset(reached | own), changing)
        elif isinstance(node, ast.Module):
            allowed = ALLOWED_FUNCTIONS.get(source.path, set())
            for one in node.body:
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name not in allowed:
                    yield from _changes(one, _parameters(one), frozenset(reached), changing)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Parameters that are a piece of the state by their type."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return {
        each.arg
        for each in every
        if each.annotation is not None
        and any(isinstance(part, ast.Name) and part.id in STATE_CLASSES for part in ast.walk(each.annotation))
        and not (isinstance(each.annotation, ast.Subscript) and "tuple" in ast.unparse(each.annotation))
    }


def _kept(function: ast.FunctionDef | ast.AsyncFunctionDef, reached: frozenset[str]) -> set[str]:
    """Attributes in which a method keeps what it holds."""
    held = _held(function, _parameters(function), reached)
    return {
        target.attr
        for target, value, is_loop in _assigned(function)
        if isinstance(target, ast.Attribute) and _gives(value, is_loop, held, reached)
    }


def _assigned(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr, bool]]:
    """Each target with what it is given, and whether that is out of a loop; tuples taken apart."""
    for node in ast.walk(function):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.For | ast.comprehension):
            pairs = [(node.target, node.iter)]
        is_loop = isinstance(node, ast.For | ast.comprehension)
        for target, value in pairs:
            if not isinstance(target, ast.Tuple):
                yield target, value, is_loop
            elif isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                yield from ((each, own, is_loop) for each, own in zip(target.elts, value.elts, strict=True))
            else:
                yield from ((each, value, is_loop) for each in target.elts)


def _held(function: ast.AST, held: set[str], reached: frozenset[str]) -> set[str]:
    """The local names that are pieces of the state."""
    held = set(held)
    while True:
        more = {
            target.id
            for target, value, is_loop in _assigned(function)
            if isinstance(target, ast.Name) and _gives(value, is_loop, held, reached)
        }
        if more <= held:
            return held
        held |= more


def _gives(value: ast.expr, is_loop: bool, held: set[str], reached: frozenset[str]) -> bool:
    """Whether something, or in a loop each element of it, is a piece of the state."""
    if is_loop and isinstance(value, ast.GeneratorExp | ast.ListComp):
        inner = held | {
            each.target.id
            for each in value.generators
            if isinstance(each.target, ast.Name) and _gives(each.iter, True, held, reached)
        }
        return _is_held(value.elt, inner, reached)
    if (
        is_loop
        and isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ALL_OF
    ):
        return any(_gives(each, True, held, reached) for each in value.args)
    return _is_held(value, held, reached)


def _is_held(node: ast.expr, held: set[str], reached: frozenset[str]) -> bool:
    """Whether an expression is a piece of the state, or has it at its beginning."""
    match node:
        case ast.Name():
            return node.id in held
        case ast.Attribute():
            return node.attr in reached or _is_held(node.value, held, reached)
        case ast.Subscript():
            return _is_held(node.value, held, reached)
        case ast.Call(func=ast.Attribute(attr=name)) if name in COPIES:
            return False
        case ast.Call(func=ast.Name(id=name)):
            return name in ONE_OF and any(_gives(each, True, held, reached) for each in node.args)
        case ast.Call(func=ast.Attribute() as called):
            return _is_held(called.value, held, reached)
        case ast.IfExp():
            return _is_held(node.body, held, reached) or _is_held(node.orelse, held, reached)
        case ast.BoolOp():
            return any(_is_held(each, held, reached) for each in node.values)
        case ast.NamedExpr():
            return _is_held(node.value, held, reached)
    return False


def _changes(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    held: set[str],
    reached: frozenset[str],
    changing: frozenset[str],
) -> Iterator[tuple[int, str]]:
    """Assignments to what is held, and calls that change it."""
    held = _held(function, held, reached) if "self" not in held else held
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = [
                part
                for each in node.targets
                for part in (each.elts if isinstance(each, ast.Tuple) else [each])
            ]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript) and _is_held(target.value, held, reached):
                yield target.lineno, ast.unparse(target)
        if isinstance(node, ast.Call):
            called = node.func
            if (
                isinstance(called, ast.Attribute)
                and called.attr in changing
                and _is_held(called.value, held, reached)
            ):
                yield node.lineno, ast.unparse(called)
            elif (
                isinstance(called, ast.Name)
                and called.id in OF_HEAPS
                and _is_held(node.args[0], held, reached)
            ):
                yield node.lineno, f"{called.id}({ast.unparse(node.args[0])})"


def test_only_apply_changes_the_state_and_only_a_draft_what_placement_sees():
    assert state_changes(sources(ROOT, "src")) == []


def test_the_methods_that_change_their_object_are_found():
    found = changers(sources(ROOT, "src"))
    assert {
        "take",
        "give_back",
        "promise",
        "set_open",
        "set_topology",
        "add_job",
        "move",
        "begin",
        "put",
    } <= found
    assert (
        not {"fit", "slots", "has_room", "ready", "wanted", "attempt", "is_silent", "snapshot", "refuses"}
        & found
    )


TRIED = """
from x import ClusterState, Attempt, Snapshot

def careless(state: ClusterState, attempt: Attempt | None, name):
    state.gain += 1
    job = state.jobs.get(name)
    job.hold_until = 0.0
    for node in list(state.nodes.values()):
        node.lanes.clear()
    del state.promised[name]
    heappop(state.retries)
    state.table.take(0, None)
    first, attempt.ending = 1, None
    if (found := state.attempt(name)) is not None:
        found.ready = True
    next(each for each in state.jobs.values()).done.add(1)

def careful(state: ClusterState, names: list[str]):
    found = [job for job in state.jobs.values() if job.is_over]
    found.append(None)
    other = state.table.ledger("n1").copied()
    other.take(None)
    counts = list(state.counts)
    counts[0] += 1
    names.clear()
    return sorted(state.jobs)

class Keeper:
    def __init__(self, state: ClusterState, snapshot: Snapshot):
        self._cluster, self.count = state, 0
        self._seen = snapshot

    def go(self):
        self.count += 1
        self._cluster.epoch = 3
        self._seen.waiting.discard(None)
        self.engine.state.skipped += 1
"""
MODEL = """
class ClusterState:
    def take(self, row, grant):
        self._count(grant)

    def _count(self, grant):
        self.free -= grant

    def ledger(self, name):
        return self.ledgers[name]
"""


def test_changes_of_what_is_only_held_are_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {"src/phalanx/sim/a.py": TRIED, f"{CORE}cluster/apply/a.py": TRIED, f"{CORE}model/a.py": MODEL},
    )
    seen = [line.split(": ", 2)[-1] for line in state_changes(sources(tmp_path, "src"))]
    assert sorted(seen) == sorted((
        "state.gain", "job.hold_until", "node.lanes.clear", "state.promised[name]", "heappop(state.retries)",
        "state.table.take", "attempt.ending", "found.ready",
        "next((each for each in state.jobs.values())).done.add", "self._cluster.epoch", "self._seen.waiting.discard",
        "self.engine.state.skipped",
    ))  # fmt: skip


def test_a_plan_that_writes_into_its_snapshot_is_seen(tmp_path: Path):
    body = ("draft.nodes.take(0, None)", "draft.take(0, None)", "draft.tenants.used[0] = 1")
    text = "\n    ".join(("def place(draft, unit):", *body))
    model = "class NodeTable:\n    def take(self, row, grant):\n        self.free -= grant\n"
    a_tree(
        tmp_path,
        {f"{CORE}placement/a.py": text, f"{CORE}placement/draft.py": text, f"{CORE}model/a.py": model},
    )
    seen = [line.split(": ", 2)[-1] for line in state_changes(sources(tmp_path, "src"))]
    assert sorted(seen) == ["draft.nodes.take", "draft.tenants.used[0]"]
