"""A fix: what to ask for instead, or what to do, and who may do it."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.job import Job


class Change(Struct, frozen=True):
    """A sentence, the fields of the request that change, a command line that the asker may run."""

    text: str
    fields: dict[str, object] = {}
    command: str = ""


class Asker(Struct, frozen=True):
    """Who asks. A command that would be refused is not offered."""

    user: str = ""
    controls_all: bool = False  # may cancel jobs of others
    operates: bool = False  # may drain and resume nodes
    declares: bool = False  # may set quotas

    def may_cancel(self, job: Job) -> bool:
        return self.controls_all or (bool(self.user) and job.user == self.user)


ADMIN = Asker(controls_all=True, operates=True, declares=True)
NOBODY = Asker()
