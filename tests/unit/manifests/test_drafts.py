"""Gangs of which not all has been applied: what is kept of them, and read again with what follows (M11)."""

from __future__ import annotations

import pytest

from phalanx.api.schema.jobspec import GangSpec
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.drafts import kept_text
from phalanx.manifests.found import ParsedJob
from phalanx.manifests.read import read
from tests.unit.manifests.documents import a_pod, seed, text_of

GANG = "gang-example"


def the_gang(text: str, *kept: str, folder: str = "/home/ada") -> ParsedJob:
    (found,) = read([("new.yaml", text)], kept=kept, folder=folder).found
    return found


def gang_id(found: ParsedJob) -> str:
    assert isinstance(found.spec.gang, GangSpec)
    return found.spec.gang.id


def lacks(found: ParsedJob) -> str:
    return found.spec.draft.lacks if found.spec.draft is not None else ""


def test_a_podgroup_without_pods_is_a_gang_that_waits():
    found = the_gang(seed("003-podgroup"))
    assert lacks(found) == "default/gang-example needs 2 members and has 0"
    assert (gang_id(found), found.spec.groups[0].tasks) == ("default/gang-example", 2)


def test_members_come_one_by_one_and_may_be_given_again():
    kept = kept_text(the_gang(seed("003-podgroup")).documents, "/home/ada")
    one, two = (text_of(a_pod(f"p{number}", gang=GANG)) for number in (1, 2))
    first = the_gang(one, kept)
    assert lacks(first) == "default/gang-example needs 2 members and has 1"
    assert first.spec.groups[0].objects == ["default/p1"]
    kept = kept_text(first.documents, "/home/ada")
    assert lacks(the_gang(one, kept, folder="/elsewhere")) == lacks(first)
    whole = the_gang(f"{one}\n---\n{two}", kept)
    (group,) = whole.spec.groups
    assert (whole.spec.draft, group.objects, group.cwd) == (None, ["default/p1", "default/p2"], "/home/ada")


def test_a_member_runs_in_the_folder_it_was_applied_from():
    kept = kept_text(
        the_gang(seed("003-podgroup") + "\n---\n" + text_of(a_pod("p1", gang=GANG))).documents, "/home/ada"
    )
    whole = the_gang(text_of(a_pod("p2", gang=GANG)), kept, folder="/home/eve")
    assert {name: group.cwd for group in whole.spec.groups for name in group.objects} == {
        "default/p1": "/home/ada",
        "default/p2": "/home/eve",
    }


def test_a_member_that_is_given_again_otherwise_is_refused_with_what_to_do():
    pod = text_of(a_pod("p1", gang=GANG))
    kept = kept_text(the_gang(seed("003-podgroup") + "\n---\n" + pod).documents, "/home/ada")
    with pytest.raises(ManifestError, match="phalanx cancel default/p1"):
        the_gang(text_of(a_pod("p1", gang=GANG, hostname="other")), kept)


def test_a_gang_waits_for_those_it_starts_together_with():
    groups = seed("003-ganggroup").partition("---")
    found = the_gang(groups[0])
    assert gang_id(found) == "default/gang-example1,default/gang-example2"
    assert "starts together with default/gang-example2" in lacks(found)
    whole = the_gang(groups[2], kept_text(found.documents, "/"))
    assert "default/gang-example1 needs 1 member and has 0" in lacks(whole)


def test_pods_without_a_podgroup_are_known_as_such():
    found = the_gang(text_of(a_pod("p1", gang="misspelt")))
    assert found.is_orphan
    assert "has neither a PodGroup nor" in lacks(found)
