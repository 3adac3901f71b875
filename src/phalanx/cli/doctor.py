"""`phalanx doctor`: check an installation, from the place it is run in, and name what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer

from phalanx.cli.doctor_checks import DoctorLine, run_checks
from phalanx.cli.doctor_cluster import cluster_checks
from phalanx.cli.doctor_machine import machine_checks
from phalanx.cli.output import OutputOption, emit
from phalanx.cli.session import session
from phalanx.core.model.amounts import plural

FAILED = 1


def doctor(ctx: typer.Context, output: OutputOption = None) -> None:
    """Check this installation and its cluster, and say what to do about what is wrong.

    Exits with 1 if a check fails; warnings leave the exit code 0. Nothing is changed, no cluster is needed, and no
    check takes longer than 5 s.
    """
    here = session(ctx)
    chosen = here.output(output)
    settings = here.settings
    lines = run_checks([*machine_checks(settings), *cluster_checks(settings)])
    failed = [line for line in lines if line.state == "fail"]
    emit(lines, chosen, [line.check for line in failed], lambda _wide: _drawn(lines))
    if failed:
        raise typer.Exit(FAILED)


def _drawn(lines: Sequence[DoctorLine]) -> Iterable[str]:
    width = max(len(line.check) for line in lines)
    for line in lines:
        yield f"{line.state:<4}  {line.check:<{width}}  {line.text}"
        if line.fix:
            yield f"{'':<4}  {'':<{width}}  fix: {line.fix}"
    counts = {state: sum(line.state == state for line in lines) for state in ("ok", "warn", "fail")}
    yield f"{counts['ok']} ok, {plural(counts['warn'], 'warning')}, {counts['fail']} failed"
