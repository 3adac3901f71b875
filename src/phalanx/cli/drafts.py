"""`phalanx apply` and gangs whose members come one after the other.

What was applied of such a gang before is kept by the coordinator, and read here together with what comes now. If
somebody else adds members at the same time, it is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from phalanx.api.applied import AmendSpec, ApplyReply, ApplyRequest, DraftView
from phalanx.api.jobspec import GangSpec, JobSpec
from phalanx.core.model.ids import is_object
from phalanx.errors import Conflict, NotFound, PhalanxError

if TYPE_CHECKING:
    from phalanx.api.client import Client
    from phalanx.manifests.found import Found
    from phalanx.manifests.read import Manifests, Text

TRIES = 10


class Drafts:
    """The gangs of some files that wait for members on the server, by the names of their PodGroups."""

    def __init__(self, client: Client, texts: Sequence[Text], *, strict: bool) -> None:
        self._client = client
        self._texts = texts
        self._strict = strict
        self._known: dict[str, DraftView] = {}

    def read(self, alone: Manifests) -> Manifests:
        """What the files hold together with what was kept of the same gangs; `alone` is what they hold without it."""
        self._known = {}
        for found in alone.found:
            for name in _names(found):
                if (draft := self._draft(name)) is not None:
                    self._known[name] = draft
        kept = {draft.job: draft.manifests for draft in self._known.values()}
        made = read_files(self._texts, list(kept.values()), strict=self._strict) if kept else alone
        refuse_orphans(made)
        return made

    def of(self, found: Found) -> list[DraftView]:
        """What a gang was before, the oldest first."""
        known = {self._known[name].job: self._known[name] for name in _names(found) if name in self._known}
        return [known[job] for job in sorted(known)]

    def amend(self, found: Found, *, allow_infeasible: bool) -> ApplyReply:
        """Add members to a gang that waits for them."""
        for _ in range(TRIES):
            first, *others = self.of(found)
            amends = AmendSpec(first.job, first.version)
            request = ApplyRequest(
                [kept_spec(found)], amends=amends, allow_infeasible=allow_infeasible, strict=self._strict
            )
            try:
                reply = self._client.apply(request)
            except Conflict as error:
                if error.reason != "Amended":
                    raise
            else:
                for each in others:  # they are one gang now
                    reply.warnings += self._cancelled(each, first)
                return reply
            made = self.read(read_files(self._texts, [], strict=self._strict))
            found = next(each for each in made.found if set(_names(each)) & set(_names(found)))
        raise Conflict(f"{found.id}: others add members all the time", reason="Amended")

    def _cancelled(self, part: DraftView, whole: DraftView) -> list[str]:
        """Cancel what has become part of another gang; why that failed, for the gang is accepted anyway."""
        try:
            self._client.cancel(part.job)
        except PhalanxError as error:
            return [f"{part.job} is part of {whole.job} now, and could not be cancelled: {error.detail}"]
        return []

    def _draft(self, name: str) -> DraftView | None:
        try:
            return self._client.draft(self._client.named(name, own=True).id)
        except NotFound:
            return None


def read_files(texts: Sequence[Text], kept: Sequence[str], *, strict: bool) -> Manifests:
    from phalanx.manifests.read import read

    return read(texts, strict=strict, kept=kept, folder=str(Path.cwd()))


def kept_spec(found: Found) -> JobSpec:
    """The spec, with what it was made from if it waits for members."""
    from phalanx.manifests.drafts import kept_text

    spec = found.spec
    if spec.draft is None:
        return spec
    text = kept_text(found.documents, str(Path.cwd()))
    return structs.replace(spec, draft=structs.replace(spec.draft, manifests=text))


def refuse_orphans(made: Manifests) -> None:
    """Pods of a gang of which nobody says how many members it needs may have misspelt its name."""
    from phalanx.manifests.caution import ManifestError

    for found in made.found:
        if found.is_orphan and found.spec.draft is not None:
            raise ManifestError(found.where, f"gang {found.spec.draft.lacks}", reason="GangIncomplete")


def _names(found: Found) -> list[str]:
    gang = found.spec.gang
    if not found.documents or not isinstance(gang, GangSpec):
        return []
    return [name for name in gang.id.split(",") if is_object(name)]
