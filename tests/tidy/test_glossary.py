"""The glossary is the gate: a file's name is made of words that it defines, or of words that need no definition.

Asked are all files and folders of `core/`, and the first level of every package. A new word goes into docs/glossary.md,
or into a group below, if every engineer knows it from elsewhere.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.source import ROOT, a_tree

GLOSSARY = ROOT / "docs/glossary.md"
PLAIN = {
    "parts that most programs have": """
        access address aliases archive attached audit calls change check child claim cli client clock
        command config connecting connection contents convert copy core daemon density depth detach digest disk duplex
        embedded endpoint environment errors feed files collector garbage goal graph harm history home homes hosts http
        id image fields keywords waited plain values
        handle instants key labels launches limits lines future submission listener listing live load lone one logger
        located option form choice approve allowed closed foreign
        logs lookup loop machine main message metrics model names naming network offline online open output owners
        page patterns pickle picture pool process program protocol queries questions read record refusal
        reply retention rows
        script search secret server session set settings setup share shell socket split state statuses supervisor table
        terminal tokenfile tree trust types options users verified version view wire
    """,
    "protocols and things outside": """
        acceptor aichor api async batchjob ca certificates cgroups containers descriptors etcd eventloop grpc
        jobset json kernel keyspace manifests memory netlink nftables podgroups pods ports project redis rlimits
        routes rpc signals sqlite taints tls wireguard
    """,
    "commands, as they are typed": """
        alloc apply cancel completion connect doctor down exec forward forwarding port ps run stop submit ui up wait why
    """,
    "what a scheduler does, in the words of the field": """
        amounts ask best breaker candidate case decide declaration declared described detail dispatch draining engine
        eviction explain fit fixes free health invariants jitter kinds lacking leader leaving link lone object offers
        outage packing place planned preempt prefetch preparing pretend preview priorities product quantity ranking
        read releases repair report removals reserve reserved resources restarts rules shape short shortage sim slots
        smaller scheduler spread start stopping store subjects survey times topology traits transitions trim unconfirmed
        unread reader victim waiting workload
    """,
    "the simulator's checkers and models": """
        checkers chronicle faults floor life places standstill trial vault violation waits watched world
    """,
    "how a cluster is read and repaired": """
        applied assembly auth caution chain damage decision endings entries exits found held hole in incomplete log
        make never orders restore room salvage
    """,
}


def known_words(glossary: str) -> set[str]:
    """The words of the first column, and those in italics beside them."""
    found: set[str] = set()
    for line in glossary.partition("## Former names")[0].splitlines():
        if line.startswith("| "):
            _, word, meaning, *_ = line.split("|")
            found |= set(re.findall(r"[a-z]+", word.lower())) | set(re.findall(r"\*([a-z]+)\*", meaning))
    return found | {word for group in PLAIN.values() for word in group.split()}


def unknown_names(root: Path, known: set[str]) -> list[str]:
    """Files and folders with a word in their name that stands nowhere."""
    package = root / "src/phalanx"
    asked = {*package.glob("*.py"), *package.glob("*/*.py"), *package.glob("core/**/*.py")}
    folders = {parent for path in asked for parent in path.relative_to(package).parents if parent.name}
    names = {(path.relative_to(package), path.stem) for path in asked} | {
        (each, each.name) for each in folders
    }
    return [
        f"{path.as_posix()}: {word!r} is neither in docs/glossary.md nor in tests/tidy/test_glossary.py"
        for path, name in sorted(names)
        if not name.startswith("__")
        for word in name.split("_")
        if not _forms(word) & known
    ]


def _forms(word: str) -> set[str]:
    """The word, and what it may be the plural of."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def test_every_file_name_is_made_of_known_words():
    assert unknown_names(ROOT, known_words(GLOSSARY.read_text())) == []


def test_a_word_is_defined_once():
    rows = [
        line.split("|")[1].strip()
        for line in GLOSSARY.read_text().partition("## Former")[0].splitlines()
        if line[:2] == "| "
    ]
    assert [row for row in sorted(set(rows)) if rows.count(row) > 1] == []


def test_an_unknown_name_is_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "src/phalanx/core/model/ledger.py": "",
            "src/phalanx/core/model/deep/porch.py": "",
            "src/phalanx/runner/keeper/anything.py": "",
            "src/phalanx/runner/task_lanes.py": "",
        },
    )
    found = unknown_names(tmp_path, {"core", "model", "ledger", "runner", "keeper", "task", "lane"})
    assert [line.partition(":")[0] for line in found] == ["core/model/deep", "core/model/deep/porch.py"]
