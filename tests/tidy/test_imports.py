"""Imports go one way, and the arrows are drawn here.

    cli ─► sim ─► coordinator | runner | worker ─► client ─► api.server | rpc ─► api.schema | link | store ─► core

Siblings separated by | do not import each other; arrows may skip layers. `config`, `errors`, `clock`, `logger` and the
version are there for all but `core`. Inside `core`, `cluster` and `placement` meet only
through `model`, and in `explain`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from tests.tidy.source import ROOT, Source, a_tree, imported, module_name, sources

When = Literal["at once", "later", "never"]

CORE = {"core", "core.model", "core.cluster", "core.placement", "core.explain", "core.runner"}
SHARED = {
    "config",
    "settings",
    "settings_aliases",
    "settings_elastic",
    "settings_health",
    "settings_overlay",
    "settings_proxy",
    "settings_scheduler",
    "settings_types",
    "routes",
    "tokenfile",
    "trust",
    "endpoint",
    "tls",
    "errors",
    "clock",
    "duplex",
    "logger",
    "__version__",
}
API = {"api.schema", "api.server"}
BELOW = CORE | SHARED | API | {"client", "link", "rpc", "store"}
SHELLS = BELOW | {"coordinator", "runner"}

# Each room and what it may import besides itself. A room is a package, or a module directly in phalanx.
ARROWS: dict[str, set[str]] = {
    "core.model": set(),
    "core": {"core.model"},
    "core.cluster": {"core", "core.model"},
    "core.placement": {"core", "core.model"},
    "core.explain": {"core", "core.model", "core.cluster", "core.placement"},
    "core.runner": {"core", "core.model"},
    "clock": set(),
    "version": set(),
    "logger": set(),
    "duplex": set(),
    "errors": CORE,
    "settings": CORE
    | {
        "errors",
        "settings_elastic",
        "settings_health",
        "settings_overlay",
        "settings_proxy",
        "settings_scheduler",
        "settings_types",
    },
    "settings_proxy": CORE | {"errors", "settings_types"},
    "settings_elastic": CORE | {"errors", "settings_types"},
    "settings_health": CORE | {"errors", "settings_types"},
    "settings_overlay": CORE | {"errors"},
    "routes": {"errors"},
    "settings_scheduler": CORE | {"settings_types"},
    "settings_aliases": set(),
    "settings_types": CORE,
    "tokenfile": {"errors", "settings"},
    "trust": {"errors", "tokenfile"},
    "config": CORE | {"errors", "settings", "settings_aliases", "tokenfile", "trust"},
    "endpoint": {"config", "errors", "settings", "settings_types", "tokenfile"},
    "tls": {"errors"},
    "certificates": {"clock", "errors"},  # Costly to import, so only users of certificates do.
    "store": CORE | SHARED,
    "api": set(),
    "api.schema": CORE | SHARED,
    "api.server": CORE | SHARED | {"api.schema"},
    "link": CORE | SHARED,
    "rpc": CORE | SHARED | {"api.schema", "link"},
    "client": CORE | SHARED | API | {"rpc"},
    "manifests": CORE | SHARED | {"api.schema"},
    "preview": CORE | SHARED | {"api.schema", "manifests"},
    "dashboard": set(),
    "coordinator": BELOW | {"dashboard", "certificates", "manifests", "preview"},
    "runner": BELOW,
    "vps": {"config", "errors", "runner"},
    "worker": CORE | SHARED | API | {"client"},
    "sim": SHELLS,
    "embedded": SHELLS,  # The whole cluster in one process wires both shells together.
    "cli": SHELLS | {"certificates", "manifests", "preview", "sim", "embedded", "phalanx"},
    "phalanx": CORE | SHARED | API | {"client", "embedded"},  # The package's own __init__.py.
    "__main__": {"cli"},
}
# Start-up time is felt here, so these may import inside a function. In `store` it is because a coordinator on SQLite
# must not pay for gRPC or Redis, in `coordinator` and `client` because only those who speak gRPC pay for it, in
# `api.schema` because a command must not pay for RE2.
LAZY_ROOMS = {
    "api.schema",
    "api.server",  # of websockets, which only needs who has a terminal in a browser
    "cli",
    "client",
    "coordinator",
    "embedded",
    "config",
    "tokenfile",
    "trust",
    "phalanx",
    "runner",  # of pyroute2, which only needs who makes an overlay network
    "store",
    "vps",  # of asyncssh, which a VPS without SSH does not need
    "worker",  # of cloudpickle, which only needs who pickles
}
# `import phalanx` must stay cheap: these are imported there in a function, or for types only.
ALWAYS_LAZY_FROM_PHALANX = CORE | API | {"client", "embedded", "errors", "tls", "version"}


def room_of(name: str) -> str:
    """The longest known room that `name` is in: `phalanx.core.model.job.Job` is in `core.model`."""
    parts = name.split(".")[1:3]
    for length in range(len(parts), 0, -1):
        if (room := ".".join(parts[:length])) in ARROWS or room in SHARED:
            return room
    return "phalanx"


def import_violations(found: tuple[Source, ...]) -> list[str]:
    return [violation for source in found for violation in _violations(source)]


def _violations(source: Source) -> Iterator[str]:
    here = room_of(module_name(source))
    if here == "phalanx" and source.path != "src/phalanx/__init__.py":
        yield source.at(1, "no arrows are drawn for this room; add it to ARROWS")
        return
    for node, when in _imports(source.tree, "at once"):
        if when == "later" and here not in LAZY_ROOMS:
            yield source.at(node.lineno, "an import inside a function hides an arrow; move it to the top")
        for name in imported(source, node):
            if name.split(".")[0] != "phalanx":
                continue
            there = room_of(name)
            if there != here and there not in ARROWS[here]:
                yield source.at(node.lineno, f"{here} may not import {there} ({name})")
            elif here == "phalanx" and there in ALWAYS_LAZY_FROM_PHALANX and when == "at once":
                yield source.at(node.lineno, f"import {there} inside a function, to keep start-up cheap")


def _imports(node: ast.AST, when: When) -> Iterator[tuple[ast.Import | ast.ImportFrom, When]]:
    """Each import and when it happens: at once, later in a function, or never, when it is for types only."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from _imports(child, "never")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(child, "later")
        else:
            yield from _imports(child, when)


def test_imports_follow_the_arrows():
    assert import_violations(sources(ROOT, "src")) == []


def test_an_arrow_against_the_stream_is_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "src/phalanx/core/cluster/a.py": "from phalanx.core.placement.engine import plan",
            "src/phalanx/core/model/b.py": "import phalanx.errors",
            "src/phalanx/api/schema/c.py": "from ...store import memory",
            "src/phalanx/coordinator/d.py": "from phalanx import runner",
            "src/phalanx/runner/e.py": "from phalanx.sim.world import World",
            "src/phalanx/embedded.py": "import phalanx.cli.main",
        },
    )
    complaints = [line.split(": ")[1] for line in import_violations(sources(tmp_path, "src"))]
    assert complaints == [
        "api.schema may not import store (phalanx.store.memory)",
        "coordinator may not import runner (phalanx.runner)",
        "core.cluster may not import core.placement (phalanx.core.placement.engine.plan)",
        "core.model may not import errors (phalanx.errors)",
        "embedded may not import cli (phalanx.cli.main)",
        "runner may not import sim (phalanx.sim.world.World)",
    ]


def test_an_import_inside_a_function_is_seen_outside_the_lazy_rooms(tmp_path: Path):
    late = "def start():\n    import json\n"
    a_tree(
        tmp_path,
        {"src/phalanx/sim/a.py": late, "src/phalanx/cli/b.py": late, "src/phalanx/embedded.py": late},
    )
    (violation,) = import_violations(sources(tmp_path, "src"))
    assert violation.startswith("src/phalanx/sim/a.py:2: an import inside a function")


def test_the_package_itself_imports_its_client_lazily(tmp_path: Path):
    eager = "from phalanx.client.client import Client\n"
    late = "def __getattr__(name: str) -> object:\n    from phalanx.embedded import Local\n"
    a_tree(tmp_path, {"src/phalanx/__init__.py": eager + late})
    (violation,) = import_violations(sources(tmp_path, "src"))
    assert "import client inside a function" in violation


def test_a_new_room_has_to_draw_its_arrows(tmp_path: Path):
    a_tree(tmp_path, {"src/phalanx/newroom/a.py": "import json\n"})
    (violation,) = import_violations(sources(tmp_path, "src"))
    assert "no arrows are drawn" in violation


def test_arrows_that_are_allowed_are_left_alone(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "src/phalanx/core/cluster/a.py": "from phalanx.core.model.job import Job\nfrom . import state\n",
            "src/phalanx/coordinator/b.py": "from phalanx.core.cluster import decide\nimport phalanx.clock\n",
            "src/phalanx/api/schema/c.py": "from phalanx import __version__\n",
            "src/phalanx/cli/d.py": "def run():\n    from phalanx.sim import main\n",
        },
    )
    assert import_violations(sources(tmp_path, "src")) == []
