"""`phalanx apply` and gangs whose members come one after the other.

What was applied of such a gang before is kept by the coordinator, and read here together with what comes now. If
another user adds members at the same time, it is read again. Whether objects that were applied before are applied
again is decided by the coordinator, by the digests that a spec takes along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from phalanx.api.schema.apply import AmendSpec, ApplyReply, ApplyRequest, DraftView
from phalanx.api.schema.jobspec import GangSpec, JobSpec
from phalanx.cli.labels import label
from phalanx.cli.members import ENDED
from phalanx.core.model.job import is_object
from phalanx.errors import Conflict, NotFound, PhalanxError

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.manifests.found import Incomplete, ParsedJob
    from phalanx.manifests.read import Manifests, Text

TRIES = 10
Reader = Callable[[Sequence[str]], "Manifests"]  # reads the files together with what was kept


class Drafts:
    """The gangs of some files that wait for members on the server, by the names of their PodGroups."""

    def __init__(self, client: Client, reader: Reader, *, strict: bool) -> None:
        self._client = client
        self._reader = reader
        self._strict = strict
        self.exported: dict[str, str] = {}  # the environment that jobs are applied with
        self._known: dict[str, DraftView] = {}
        self._others: dict[str, str] = {}  # jobs of gangs that wait for no members

    def read(self, alone: Manifests) -> Manifests:
        """What the files hold together with what was kept of the same gangs; `alone` is what they hold without it."""
        self._known, self._others = {}, {}
        names = [name for found in alone.found for name in _names(found)]
        names += [each.id for each in alone.incomplete if each.asked and is_object(each.id)]
        for name in dict.fromkeys(names):
            self._look_up(name)
        kept = {draft.job: draft.manifests for draft in self._known.values()}
        made = self._reader(list(kept.values())) if kept else alone
        self._refuse_orphans(made)
        return structs.replace(made, incomplete=[self._truly(each) for each in made.incomplete])

    def read_again(self) -> Manifests:
        """As before, with what others have applied meanwhile."""
        return self.read(self._reader([]))

    def of(self, found: ParsedJob) -> list[DraftView]:
        """What a gang was before, the oldest first."""
        known = {self._known[name].job: self._known[name] for name in _names(found) if name in self._known}
        return [known[job] for job in sorted(known)]

    def spec(self, found: ParsedJob) -> JobSpec:
        """The spec, with what it was made from: digests, and the text if it waits for members."""
        from phalanx.manifests.digests import digests
        from phalanx.manifests.drafts import kept_text

        spec = found.spec
        applied = digests(found.documents)
        for draft in self.of(
            found
        ):  # what was kept has a folder in it, and its digest is that of what was given
            applied |= {key: draft.applied[key] for key in applied if key in draft.applied}
        spec = structs.replace(spec, applied=applied)
        if spec.draft is None:
            return spec
        text = kept_text(found.documents, str(Path.cwd()))
        return structs.replace(spec, draft=structs.replace(spec.draft, manifests=text))

    def amend(self, found: ParsedJob, *, allow_infeasible: bool) -> ApplyReply:
        """Add members to a gang that waits for them."""
        for _ in range(TRIES):
            first, *others = self.of(found)
            amends = AmendSpec(first.job, first.version)
            request = ApplyRequest(
                [self.spec(found)],
                amends=amends,
                allow_infeasible=allow_infeasible,
                strict=self._strict,
                exported=self.exported,
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
            made = self.read_again()
            found = next(each for each in made.found if set(_names(each)) & set(_names(found)))
        raise Conflict(f"{found.id}: members are being added concurrently", reason="Amended")

    def _cancelled(self, part: DraftView, whole: DraftView) -> list[str]:
        """Cancel what has become part of another gang; why that failed, for the gang is accepted anyway."""
        try:
            self._client.cancel(part.job)
        except PhalanxError as error:
            return [f"{part.job} is part of {whole.job} now, and could not be cancelled: {error.detail}"]
        return []

    def _look_up(self, name: str) -> None:
        try:
            job = self._client.named(name, own=True).id
        except NotFound:
            return
        try:
            self._known[name] = self._client.draft(job)
        except NotFound:
            self._others[name] = job

    def _refuse_orphans(self, made: Manifests) -> None:
        """Pods of a gang whose size is not given may have misspelt its name.

        If there is a job of the gang that is not over, the coordinator says whether it has these pods.
        """
        from phalanx.manifests.caution import ManifestError

        for found in made.found:
            if not found.is_orphan or found.spec.draft is None:
                continue
            ends = [self._end(name) for name in _names(found) if name in self._others]
            if not ends:
                raise ManifestError(found.where, f"gang {found.spec.draft.lacks}", reason="GangIncomplete")
            if ends[0]:
                raise ManifestError(found.where, ends[0], reason="GangIncomplete")

    def _end(self, name: str) -> str:
        """That the job of a gang has ended, and what to do; empty if it has not."""
        job = self._client.job(self._others[name])
        if job.status not in ENDED:
            return ""
        again = "to run it again, apply its PodGroup and its pods"
        return f"gang {name} has ended as job {label(job)} ({job.status}): {again}"

    def _truly(self, each: Incomplete) -> Incomplete:
        """In a plan: why a gang cannot begin, if it has begun before."""
        if each.id not in self._others:
            return each
        text = self._end(each.id)
        if text and each.reason.numbers.get(
            "needed"
        ):  # its PodGroup is there: it begins anew, and lacks members
            return each
        text = text or (
            f"gang {each.id} has all its members, as job {self._others[each.id]}, and takes no more: "
            f"phalanx cancel {each.id} ends it"
        )
        return structs.replace(each, reason=structs.replace(each.reason, code="GangWhole", text=text))


def read_files(texts: Sequence[Text], kept: Sequence[str], *, strict: bool) -> Manifests:
    from phalanx.manifests.read import read

    return read(texts, strict=strict, kept=kept, folder=str(Path.cwd()))


def _names(found: ParsedJob) -> list[str]:
    gang = found.spec.gang
    if not found.documents or not isinstance(gang, GangSpec):
        return []
    return [name for name in gang.id.split(",") if is_object(name)]
