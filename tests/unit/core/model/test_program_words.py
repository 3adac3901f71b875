"""Words that are run as a program: found by interpreter and option, and all others left alone."""

from __future__ import annotations

import pytest

from phalanx.core.model.program_words import program_places


@pytest.mark.parametrize(
    "line",
    [
        "sh -c TEXT", "/bin/bash -lc TEXT x", "sh -ec TEXT", "bash -exc TEXT", "bash -cl TEXT", "zsh -fc TEXT",
        "bash -o pipefail -c TEXT", "bash -euo pipefail -c TEXT", "bash -c -o pipefail TEXT x", "sh -c -e TEXT",
        "bash -ceuo pipefail TEXT", "sh -c -- TEXT", "busybox sh -ec TEXT", "timeout 5 bash -lc TEXT", "su -lc TEXT u",
        "env A=1 sh -xc TEXT", "fish --command TEXT", "fish --command=TEXT", "any-program -c TEXT",
        "any-program --command TEXT", "sudo -u ada any-program --command=TEXT",
        "python -c TEXT", "python3 -Ic TEXT", "/opt/x/bin/python3.11 -uBc TEXT", "python -W ignore -Sc TEXT",
        "python -cTEXT", "pypy3 -c TEXT",
        "env -S TEXT", "/usr/bin/env -vS TEXT", "env -STEXT", "env --split-string TEXT", "env --split-string=TEXT",
        "perl -e TEXT", "perl -ne TEXT file", "perl -lane TEXT", "perl -i.bak -pe TEXT", "perl -E TEXT", "perl -eTEXT",
        "ruby -e TEXT", "ruby -rjson -ne TEXT", "node -e TEXT", "node --eval TEXT", "node --eval=TEXT", "node -pe TEXT",
        "node -p TEXT", "deno eval TEXT", "bun -e TEXT", "php -r TEXT", "php8.2 -r TEXT", "lua -e TEXT",
        "Rscript -e TEXT", "julia -E TEXT", "eval TEXT", "zsh -dfc TEXT", "fish -C TEXT", "fish --init-command TEXT",
        "perl -de TEXT", "perl -MTEXT file", "perl -mTEXT", "node --import data:TEXT", "node --require=TEXT",
        "node -r TEXT",
    ],
)  # fmt: skip
def test_a_program_text_is_found(line: str):
    argv = line.split()
    [text] = [place for place, word in enumerate(argv) if "TEXT" in word]
    assert text in program_places(argv)


@pytest.mark.parametrize(
    "line",
    [
        "echo DATA", "python train.py DATA", "python train.py -async DATA", "python train.py --eval DATA",
        "python -m trainer DATA", "bash run.sh DATA", "sh -c text name DATA", "bash -lc text name DATA",
        "sh -c -e text DATA", "python -Ic text DATA", "python -ctext DATA", "perl -eprint+1 DATA",
        "node --eval=text DATA",
        "fish --command=text DATA", "env -S text DATA", "env --split-string=text DATA", "perl -e text DATA",
        "ffmpeg -acodec DATA", "tool -e DATA", "docker run -e DATA", "make eval DATA", "trainer --evaluate DATA",
        "tool -vc DATA", "env NAME=DATA", "./python-script DATA", "node app.js --name DATA",
    ],
)  # fmt: skip
def test_data_is_left_alone(line: str):
    argv = line.split()
    assert argv.index("DATA" if "DATA" in argv else "NAME=DATA") not in program_places(argv)


def test_words_behind_a_split_text_belong_to_its_command():
    assert 3 in program_places(["env", "-S", "bash -c", "TEXT"])
    assert 2 in program_places(["env", "-Sbash -lc", "TEXT"])
    assert 2 in program_places(["env", "--split-string=bash -lc", "TEXT"])
    assert 3 not in program_places(["env", "-S", "bash run.sh", "DATA"])
    assert program_places(["env", "-S"]) == {1, 2}


@pytest.mark.parametrize(
    "argv",
    [
        ["env", "-S"] * 50_000,
        ["env", "-S", "env -S " * 50_000, "TEXT"],
        ["sh", *["-c"] * 100_000],
        ["sh", "-c"] * 50_000,
    ],
)
def test_the_work_grows_with_the_length_of_the_command(argv: list[str]):
    """A minute would not be enough if it grew with the square of it."""
    assert len(argv) - 1 in program_places(argv)


def test_an_empty_command_and_empty_words():
    assert program_places(()) == frozenset()
    assert program_places(("", "-", "--", "bash", "", "-")) == frozenset()
