"""Checks the gather layers of a job against those of the network, and finds the ones that were meant.

A layer in the wrong letter case, named without its ending or by its label is read as the layer that must be meant,
with a caution; Koordinator leaves such a job waiting for ever without a message.
"""

from __future__ import annotations

import msgspec

from phalanx.api.schema.groupspec import GatherSpec, read_gather
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.model import reason
from phalanx.core.model.reason import Reason
from phalanx.core.model.topology import Topology
from phalanx.manifests.caution import Caution


def fit_layers(
    spec: JobSpec, topology: Topology, where: str = ""
) -> tuple[JobSpec, list[Caution], Reason | None]:
    """The job with layers of the network, and why it waits if it must gather in an unknown one."""
    gather, cautions, missing = _fit(spec.gather, topology, where, f"{spec.name or 'job'}: gather")
    return msgspec.structs.replace(spec, gather=gather), cautions, missing


def fit_request(request: SubmitRequest, topology: Topology) -> tuple[SubmitRequest, list[str]]:
    """The same for a submission, before it becomes jobs; cautions are sentences."""
    if request.tasks == 1 or not request.gather:
        return request, []
    read_gather(request.gather)  # two that are refused as written may be one layer here
    gather, cautions, _ = _fit(request.gather, topology, "", "gather")
    return msgspec.structs.replace(request, gather=gather), list(map(str, cautions))


def _fit(
    gather: list[GatherSpec], topology: Topology, where: str, field: str
) -> tuple[list[GatherSpec], list[Caution], Reason | None]:
    rules: dict[str, GatherSpec] = {}
    cautions: list[Caution] = []
    missing: Reason | None = None
    for number, options in enumerate(gather):
        path = f"{field}[{number}].layer"
        meant = _meant(options.layer, topology)
        if meant is None:
            if options.must:
                missing = missing or reason.layer_unknown(options.layer, topology.names())
                rules[options.layer] = options
            else:
                cautions.append(Caution(where, path, repr(options.layer), _ignored(options.layer, topology)))
            continue
        if meant != options.layer:
            cautions.append(
                Caution(where, path, repr(options.layer), f"it is read as {meant}, the layer of this network")
            )
        former = rules.get(meant)
        must = options.must or (former is not None and former.must)
        rules[meant] = GatherSpec(meant, must, max(options.multiple, former.multiple if former else 1))
    return list(rules.values()), cautions, missing


def _ignored(word: str, topology: Topology) -> str:
    names = topology.names()
    near = reason.layer_unknown(word, names).numbers["nearest"]
    hint = f"; did you mean {near}?" if near else ""
    return f"no layer has this name (layers: {', '.join(names)}), so this preference changes nothing{hint}"


def _meant(word: str, topology: Topology) -> str | None:
    """The layer that a word means, if there is only one."""
    names = topology.names()
    if word in names:
        return word
    for same in (_folded, _bare):
        alike = [name for name in names if same(name) == same(word)]
        if len(alike) == 1:
            return alike[0]
    labelled = [layer.name for layer in topology.layers if word in layer.keys]
    return labelled[0] if len(labelled) == 1 else None


def _folded(word: str) -> str:
    return word.casefold()


def _bare(word: str) -> str:
    """The word without the ending that Koordinator gives to its layers."""
    folded = word.casefold()
    for ending in ("topologylayer", "layer"):
        if folded.endswith(ending) and folded != ending:
            return folded.removesuffix(ending)
    return folded
