"""`phalanx token …` and `phalanx audit`: tokens and roles, and the record of changes.

A new token is shown once, on standard output, so that it can be sent straight into a file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.api.schema.cluster import AuditLine, NewToken, TokenRequest, TokenView
from phalanx.cli.output import OutputOption, Table, emit, fields, moment, note, span
from phalanx.cli.session import session
from phalanx.clock import SystemClock
from phalanx.core.model.credential import ROLES
from phalanx.core.model.job import is_job_id
from phalanx.core.model.queues import DEFAULT, PRIORITY_OF_USERS
from phalanx.endpoint import endpoint
from phalanx.errors import BadRequest
from phalanx.settings import Output, Settings

if TYPE_CHECKING:
    from phalanx.client.client import Client

SHARED_ACCOUNT = (
    "warning: tasks on {nodes} run under the account of the cluster itself. Anyone who submits jobs there can read its"
    " credentials from a task and become admin: give such a token only to people you trust with that, or run the"
    " runners under an account of their own (docs/operations/tokens.md)."
)
_SUBMITTERS = ("user", "operator")
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id as shown by `phalanx token list`.")]


def create(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Option(help="User the token belongs to; it owns that user's jobs.", show_default="yours"),
    ] = None,
    role: Annotated[str | None, typer.Option(help=f"What it may do: {', '.join(ROLES)}.")] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Create a join token: it admits one runner, once.")
    ] = False,
    node: Annotated[
        str | None, typer.Option(help="With --join: only for this node name.", show_default="any new one")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Validity, or never (no expiry).", show_default="30d; with --join 1h")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Create a token with at most your own role. It is shown once."""
    if role is not None and role not in ROLES:
        raise BadRequest(f"--role {role!r}: give one of {', '.join(ROLES)}")
    if role is None and not join:
        raise BadRequest("give --role, or --join for a runner", hint=f"roles are {', '.join(ROLES)}")
    here = session(ctx)
    request = TokenRequest("join" if join else "user", name, role, expires, node)
    client = here.client()
    _tell(client.create_token(request), here.output(output))
    if role == "user":
        note(_own_priority(client))
    if role in _SUBMITTERS and (shared := _sharing(here.settings, client)):
        note(SHARED_ACCOUNT.format(nodes=", ".join(shared[:8])))


def _own_priority(client: Client) -> str:
    """How high a user may raise the priority of his jobs, in the queue of those who name none."""
    found = next((view.quota for view in client.queues() if view.name == DEFAULT), None)
    most = PRIORITY_OF_USERS if found is None or found.priority_max is None else found.priority_max
    command = f"phalanx queue set {DEFAULT} --priority-max N"
    return (
        f"A user may give jobs a priority of up to {most} in queue {DEFAULT}; `{command}` sets another limit."
    )


def _sharing(settings: Settings, client: Client) -> list[str]:
    """The nodes whose runners keep their state in this folder, beside the cluster's credentials: same account."""
    local, given = endpoint(settings.state_dir), settings.client.address
    if local is None or given not in (None, (local.address,)):
        return []
    return [node.name for node in client.nodes() if (settings.state_dir / "runners" / node.name).is_dir()]


def tokens(ctx: typer.Context, output: OutputOption = None) -> None:
    """List tokens: your own, or all of them as admin."""
    here = session(ctx)
    found = here.client().tokens()
    emit(found, here.output(output), [each.id for each in found], lambda wide: _table(found, wide))


def revoke(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Revoke a token, and those created with it for the same name."""
    here = session(ctx)
    view = here.client().revoke_token(id)
    emit(view, here.output(output), [view.id], lambda _wide: [f"{view.id} ({view.name}) revoked"])


def rotate(
    ctx: typer.Context,
    id: IdArgument,
    overlap: Annotated[
        str | None, typer.Option(help="How long the old token stays valid.", show_default="1h")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Replace a token by a new one; the old one stays valid for a while."""
    here = session(ctx)
    _tell(here.client().rotate_token(id, overlap), here.output(output))


def audit(
    ctx: typer.Context,
    tail: Annotated[int, typer.Option(min=1, max=10_000, help="Number of lines.")] = 100,
    output: OutputOption = None,
) -> None:
    """Show the audit log: changes and refusals, newest last."""
    here = session(ctx)
    found = here.client().audit(tail)
    names = [line.request_id for line in found]
    emit(found, here.output(output), names, lambda _wide: _audit_table(found))


def _tell(new: NewToken, output: Output) -> None:
    """Only the token goes to standard output; notes about it go to standard error."""
    if output in ("table", "wide"):
        sys.stdout.write(f"{new.token}\n")
        note("\n".join(_lines(new.record)))
        note("It will not be shown again.")
    else:
        emit(new, output, [new.record.id], lambda _wide: [])


def _lines(record: TokenView) -> Iterable[str]:
    ends = "never" if record.expires_at is None else moment(record.expires_at)
    whose = record.name or "any new node"
    return fields([("Id", record.id), ("For", whose), ("Role", record.role or record.kind), ("Ends", ends)])


def _ends(token: TokenView, now: float, wide: bool) -> str:
    """When it ends, in few characters: in 29d, 2h ago, never."""
    if token.expires_at is None:
        return "never"
    if wide:
        return moment(token.expires_at)
    is_over = token.expires_at < now
    return f"{span(token.expires_at, now)} ago" if is_over else f"in {span(now, token.expires_at)}"


def _table(found: list[TokenView], wide: bool) -> Table:
    headings = ("ID", "KIND", "NAME", "ROLE", "STATE", "ENDS", "LAST USED", "MADE BY")
    table = Table(*headings, narrows={"NAME": 8, "MADE BY": 8}, spare=("KIND",))
    now = SystemClock().now()
    for each in found:
        name = each.name or each.node or "any"
        table.add(
            each.id,
            each.kind,
            name,
            each.role or "-",
            _state(each),
            _ends(each, now, wide),
            None
            if each.used_at is None
            else moment(each.used_at)
            if wide
            else f"{span(each.used_at, now)} ago",
            each.created_by,
        )
    return table


def _state(token: TokenView) -> str:
    if token.kind == "join" and token.node and token.is_valid:
        return "used"
    if token.is_valid:
        return "valid"
    return "revoked" if token.is_revoked else "ended"


def _audit_table(found: list[AuditLine]) -> Table:
    headings = ("TIME", "WHO", "ROLE", "FROM", "WHAT", "ID", "STATUS", "REASON", "ROUTE")
    narrows = {"REASON": 12, "WHAT": 12, "ID": 8, "WHO": 8}
    table = Table(*headings, narrows=narrows, spare=("ROUTE", "ROLE", "FROM"))
    for line in found:
        route = " ".join(filter(None, (line.method, line.route)))
        what = " ".join(filter(None, (line.action or route, line.what)))
        left_out = f"{line.left_out} refusals before it were left out" if line.left_out else ""
        reason = ", ".join(filter(None, (line.reason, left_out)))
        who = line.name or "-", line.role or "-", line.where
        table.add(moment(line.at), *who, what, audit_id(line), line.status, reason, route)
    return table


def audit_id(line: AuditLine) -> str:
    """What it was about: its number, and the name by which it was asked for; what came of it, if that is another."""
    is_name = line.id != line.number and not is_job_id(line.id[:26])
    about = f"{line.number} ({line.id})" if line.number and is_name else line.number or line.id
    return ": ".join(filter(None, (about, line.made))) or "-"
