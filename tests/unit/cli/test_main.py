"""How commands are found, and how their errors are reported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from phalanx import errors
from phalanx.cli.main import COMMANDS, CommandGroup
from phalanx.errors import PhalanxError, TooMany
from tests.support.fake_client import Cli, FakeClient, ended_badly

EVERY_COMMAND = [
    words
    for name, entry in COMMANDS.items()
    for words in ([[name, verb] for verb in entry.verbs] if isinstance(entry, CommandGroup) else [[name]])
]


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_every_command_has_help(cli: Cli, words: list[str]):
    said = cli(*words, "--help")
    assert said.code == 0
    assert f"Usage: phalanx {' '.join(words)}" in said.out


def test_alone_it_shows_its_help(cli: Cli):
    said = cli()
    assert said.code == 0
    assert "phalanx run -- echo hello" in said.out


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["sumbit", "--", "true"], "Did you mean 'submit'"),
        (["node", "drian", "n1"], "Did you mean 'drain'"),
        (["submit", "--memry", "1G", "--", "true"], "--memory"),
        (["ps", "--al"], "--all"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(cli: Cli, words: list[str], suggestion: str):
    said = cli(*words)
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert suggestion in said.err
    assert said.out == ""


def test_a_command_with_two_names_is_listed_once(cli: Cli):
    listed = [line.split()[0] for line in cli("--help").out.partition("Commands:")[2].splitlines() if line]
    assert {"attach", "port-forward"} < {*listed}
    assert not {"connect", "forward"} & {*listed}
    for name, other in (("attach", "connect"), ("port-forward", "forward")):
        assert f"(also: `{other}`)" in cli(name, "--help").out
    assert "Did you mean 'forward'" in cli("forwrd", "1", "80").err


def test_run_does_not_list_what_it_refuses(cli: Cli):
    assert "--array" not in cli("run", "--help").out
    assert "--array" in cli("submit", "--help").out
    assert "use `phalanx submit`" in cli("run", "--array", "1-2", "--", "true").err


def test_a_missing_verb_says_where_to_read_more(cli: Cli):
    said = cli("node")
    assert (said.code, said.err) == (2, "error: Missing command.\nhint: see `phalanx node --help`\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.PhalanxError, 1),
        (errors.BadRequest, 2),
        (errors.Busy, 3),
        (errors.NoRoom, 3),
        (errors.NeverFits, 4),
        (errors.NotFound, 5),
        (errors.Conflict, 6),
        (errors.Unavailable, 69),
        (errors.TooMany, 75),
        (errors.Forbidden, 77),
        (errors.Unauthorized, 77),
    ],
)
def test_an_error_has_its_exit_code_and_its_hint(
    cli: Cli, cluster: FakeClient, error: type[PhalanxError], code: int
):
    cluster.error = ended_badly(error)
    said = cli("cluster")
    assert said.code == code
    assert said.err == "error: it did not work\nhint: try something else\n"


def test_an_error_cannot_take_over_the_terminal(cli: Cli, cluster: FakeClient):
    cluster.error = TooMany("queue \x1b]0;owned\x07 is \x1b[31mfull\x1b[0m\x9b2J")
    assert cli("cluster").err == "error: queue  is full\n"


def test_a_word_that_is_not_utf8_is_named(cli: Cli, cluster: FakeClient):
    cluster.error = UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed")
    said = cli("why", "a\udcff")
    assert (said.code, said.err) == (2, "error: 'a\\udcff' is not UTF-8\n")


def test_what_cannot_be_printed_is_not_blamed_on_the_command_line(cli: Cli, cluster: FakeClient):
    cluster.error = UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)")
    with pytest.raises(UnicodeEncodeError):
        cli("why", "17")


def test_an_interrupt_is_130_and_quiet(cli: Cli, cluster: FakeClient):
    cluster.error = KeyboardInterrupt()
    said = cli("cluster")
    assert (said.code, said.out, said.err) == (130, "", "")


def test_without_a_cluster_it_says_how_to_get_one(cli: Cli):
    said = cli("ps")
    assert said.code == 69
    assert "phalanx up" in said.err


def test_a_reader_that_leaves_is_no_accident():
    with subprocess.Popen(
        [sys.executable, "-m", "phalanx", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_start_up_stays_light():
    """What `ps` does not need must not be imported: each of these costs more than the whole command."""
    script = (
        "import sys; from phalanx.cli.main import run; import phalanx.client.client, phalanx.cli.ps\n"
        "print([name for name in ('rich', 'httpx', 'numpy', 'yaml', 'asyncio', 'phalanx.cli.up')"
        " if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_exit_code_is_kept_though_an_output_was_closed_before_we_began():
    """With a thread that still reads, as `phalanx logs -f` of two logs has it."""
    script = """
import sys, threading, time
from phalanx.cli.exits import leave
sys.stderr = None  # as Python has it after 2>&-
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
leave(7)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 7
