"""The coordinators that the settings name, each asked for itself: who is active, who stands by, who does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.api.schema_cluster import CoordinatorView
from phalanx.errors import PhalanxError
from phalanx.settings import Settings


def coordinator_lines(settings: Settings) -> Iterator[tuple[str, str]]:
    """One line for each address; none if there is only one, which says of itself what there is to say."""
    from phalanx.api.client import Client
    from phalanx.api.connection import HttpExchange
    from phalanx.api.reach import reach_by

    if len(settings.client.address or ()) < 2:
        return
    found, active = reach_by(settings), 0
    for address in found.addresses:
        exchange = HttpExchange(address, found.tls, vouched=found.vouched, patience_s=0.0)
        client = Client(token=found.token, token_file=found.token_file, exchange=exchange)
        try:
            view = client.cluster().coordinator
            active += view is not None and view.role == "Active"
            yield "Coordinator", f"{address}: {describe_role(view) if view else 'an older version'}"
        except PhalanxError as error:
            yield "Coordinator", f"{address}: {error.detail}"
        finally:
            client.close()
    if active > 1:
        yield "Alarm", f"{active} coordinators are active: do all of them have the same --store?"


def describe_role(view: CoordinatorView) -> str:
    """One coordinator in a few words."""
    if view.role == "Active":
        return f"{view.name} is Active"
    if view.trouble:
        return f"{view.name} is {view.role}, {view.behind_s:.1f} s behind; its store does not answer: {view.trouble}"
    leader = f"{view.leader} is active at {view.address}" if view.leader else "nobody is known to be active"
    return f"{view.name} is {view.role}, {view.behind_s:.1f} s behind; {leader}"
