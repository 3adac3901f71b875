"""Where workers of an executor reach the coordinators. Their token is that of their task, never the client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from phalanx.api.schema.cluster import CoordinatorView
from phalanx.errors import Unavailable
from phalanx.tls import NO_TLS, TlsFiles


class WorkerReach(NamedTuple):
    """The addresses of a client, none if it does not know any, and the authority that it trusts."""

    addresses: tuple[str, ...] = ()
    tls_files: TlsFiles = NO_TLS

    def variables(self, coordinator: Callable[[], CoordinatorView | None]) -> dict[str, str]:
        """The environment of workers. `coordinator` is asked if the client itself does not speak REST."""
        addresses = tuple(each for each in self.addresses if each.startswith("http"))
        if not addresses:
            view = coordinator()
            addresses = (view.address,) if view is not None and view.address else ()
        if not addresses:
            raise Unavailable(
                "the coordinator does not say where its REST is, so workers cannot reach it",
                hint="give the executor address=",
            )
        found = {"PHALANX_EXECUTOR_ADDRESS": ",".join(addresses)}
        if self.tls_files.ca_file is not None:
            found["PHALANX_EXECUTOR_CA_FILE"] = str(self.tls_files.ca_file.absolute())
        return found
