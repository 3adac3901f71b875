"""Valid documents of every kind that is read, for a property test to spoil."""

from __future__ import annotations

import json

from tests.unit.manifests.documents import (
    GANG,
    Doc,
    a_batch_job,
    a_jobset,
    a_node,
    a_pod,
    a_podgroup,
    a_replicated,
    a_running,
)

GATHER = {"gatherStrategy": [{"layer": "Rack", "strategy": "MustGather", "podCountMultiple": 2}]}
BOTH = ["default/g", "default/h"]
GANGS = [
    a_podgroup(
        "g", 2, groups=BOTH, network_topology_spec=json.dumps(GATHER), mode="Strict", waiting_time="5s"
    ),
    a_podgroup("h", 1, groups=json.dumps(BOTH), match_policy="only-waiting"),
]
MEMBERS = [
    *(
        a_pod(
            f"p{number}",
            gang="g",
            requests={"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 1},
            annotations={f"{GANG}/network-topology-index": str(number)},
            container={"env": [{"name": "A", "value": "$(A)"}], "args": ["x"]},
            nodeSelector={"a": "b"},
            priorityClassName="high",
            tolerations=[{"key": "x", "operator": "Exists"}],
        )
        for number in range(3)
    ),
    a_pod("q", gang="h"),
]
RULE = {
    "action": "RestartJob",
    "onJobFailureReasons": ["DeadlineExceeded"],
    "onJobFailureMessagePatterns": ["x.*"],
}
JOBSET = a_jobset(
    a_replicated("a", 2, completions=4, parallelism=2, backoffLimit=1, activeDeadlineSeconds=5),
    a_replicated("b", after=[{"name": "a", "status": "Ready"}]),
    failurePolicy={"maxRestarts": 2, "rules": [RULE]},
    successPolicy={"operator": "Any", "targetReplicatedJobs": ["a"]},
    startupPolicy={"startupPolicyOrder": "InOrder"},
)
FORGIVING = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
BATCH = a_batch_job(completions=3, podFailurePolicy=FORGIVING)
CLASS: Doc = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 5,
}
LAYERS = [
    {"topologyLayer": "Rack", "labelKey": ["rack"]},
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Rack"},
]
NETWORK: Doc = {
    "kind": "ClusterNetworkTopology",
    "metadata": {"name": "default"},
    "spec": {"networkTopologySpec": LAYERS},
}
TYPES = {
    "head": {"count": 1, "resources": {"cpus": 2, "ramRatio": 2}},
    "worker": {"completions": 2, "resources": {"accelerators": {"gpu": {"count": 1, "product": "A100"}}}},
}
AICHOR: Doc = {
    "kind": "AIchorManifest",
    "spec": {"operator": "kuberay", "command": "x", "restartPolicy": {"backoffLimit": 2}, "types": TYPES},
}
NATIVE: Doc = {
    "name": "n",
    "gang": {"wait": "5s"},
    "gather": [{"layer": "Rack", "must": True}],
    "time_limit": "1h",
    "groups": [
        {"name": "a", "tasks": 2, "min": 1, "command": ["x"], "after": []},
        {"name": "b", "shell": "y", "gpus": 1},
    ],
    "restart": {
        "whole": True,
        "limit": 1,
        "rules": [{"action": "fail", "reasons": ["oom"], "patterns": ["a.b"]}],
    },
}
CLUSTER: Doc = {
    "topology": [{"layer": "Rack", "labels": ["rack"]}],
    "queues": {"default": {"gpus": 4}},
    "now": 5,
    "nodes": [
        {"name": "m[1-2]", "cores": 8, "memory": "8GiB", "gpus": 2, "numa": 2, "labels": {"rack": "1"}}
    ],
    "running": [{"name": "low", "gpus": 1, "places": ["m1"], "started_at": 1}],
    "waiting": [{"name": "w", "tasks": 2}],
}
TAINTED = {"taints": [{"key": "x", "effect": "NoSchedule"}]}
ASKED = [*GANGS, *MEMBERS, JOBSET, BATCH, AICHOR, NATIVE, NETWORK, CLASS]
LYING = [
    a_node("n1", cpu="7910m", memory="16Gi", gpu="4", spec=TAINTED),
    a_running("r1", "n1", requests={"cpu": "100m", "koordinator.sh/gpu-core": 50}),
    a_running("r2", "n1", gang="old"),
    a_podgroup("old", 1),
    a_pod("w", gang="old"),
    CLUSTER,
    NETWORK,
    CLASS,
]
