"""The documents are complete: every field of a job file, every annotation that is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.api.schema.groupspec import GatherSpec, GroupSpec
from phalanx.api.schema.jobspec import GangSpec, JobSpec, RestartSpec, RuleSpec, SuccessSpec
from phalanx.manifests.amounts import COUNTED
from phalanx.manifests.kinds import NAMES
from phalanx.manifests.podgroups import AFFINITY, LABEL, MATCHES
from phalanx.manifests.pods import PROTECTED, QUEUE_LABELS
from phalanx.manifests.workload import KUEUE_EITHER_WAY, KUEUE_MUST, KUEUE_PREFER

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    "form", [JobSpec, GroupSpec, GangSpec, GatherSpec, RestartSpec, RuleSpec, SuccessSpec]
)
def test_every_field_of_a_job_file_is_in_the_reference(form: type[JobSpec]):
    text = (DOCS / "reference" / "job-file.md").read_text(encoding="utf-8")
    assert [field for field in form.__struct_fields__ if field not in text] == []


def test_every_word_that_is_read_is_in_the_guide():
    text = (DOCS / "guides" / "coming-from.md").read_text(encoding="utf-8")
    words = [AFFINITY, LABEL, *QUEUE_LABELS, *(key for key, _ in PROTECTED), *NAMES.split(", "), KUEUE_MUST]
    words += [name.rpartition("/")[2] for name in (*COUNTED, KUEUE_PREFER, KUEUE_EITHER_WAY)]
    words += [
        "network-topology-spec",
        "network-topology-index",
        "total-number",
        "waiting-time",
        "min-available",
        MATCHES[0],
    ]
    assert [word for word in words if word not in text] == []
