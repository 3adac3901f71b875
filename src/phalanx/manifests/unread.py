"""Cautions about fields that were not read: most deserve one, some do not.

Harmless are fields that the API server writes, and values that are its defaults. A plan ignores fields that only
matter to a running container.
"""

from __future__ import annotations

import re

from phalanx.manifests.view import View

NOT_READ = "is not read, and changes nothing here"

# Written by servers and tools, about the object.
HARMLESS = re.compile(
    r"status|metadata\.(uid|resourceVersion|generation|creationTimestamp|deletionTimestamp|deletionGracePeriodSeconds"
    r"|managedFields|selfLink|ownerReferences|finalizers|generateName)"
    r"|.*metadata\.annotations\[kubectl\.kubernetes\.io/last-applied-configuration\]"
    r"|.*metadata\.(labels|annotations)\[("
    r"batch\.kubernetes\.io/.*|jobset\.sigs\.k8s\.io/.*|controller-uid|job-name"
    r"|internal\.scheduling\.koordinator\.sh/.*)\]"
    r"|.*metadata\.labels\.(controller-uid|job-name|pod-template-hash)"
    r"|.*metadata\.creationTimestamp"
)
# Values that mean the same as leaving the field out: the API server fills them in.
DEFAULTS: dict[str, tuple[object, ...]] = {
    "dnsPolicy": ("ClusterFirst",),
    "enableServiceLinks": (True,),
    "serviceAccount": ("default",),
    "serviceAccountName": ("default",),
    "securityContext": ({},),
    "terminationMessagePath": ("/dev/termination-log",),
    "terminationMessagePolicy": ("File",),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "automountServiceAccountToken": (False,),
    "hostNetwork": (True,),  # a process on the host has the host's network
    "hostPID": (True,),
    "hostIPC": (True,),
    "suspend": (False,),
    "manualSelector": (False,),
    "podReplacementPolicy": ("TerminatingOrFailed",),
    "managedBy": ("kubernetes.io/job-controller", "jobset.sigs.k8s.io/jobset-controller"),
}
# Fields that only matter to a container while it runs.
RUN_ONLY = frozenset(
    {
        "automountServiceAccountToken", "builder", "clone", "dnsConfig", "dnsPolicy", "enableServiceLinks", "envFrom",
        "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostname", "image", "imagePullPolicy", "imagePullSecrets",
        "lifecycle", "livenessProbe", "os", "ports", "readinessGates", "readinessProbe", "restartPolicyRules",
        "securityContext", "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace",
        "startupProbe", "stdin", "stdinOnce", "storage", "subdomain", "tensorboard", "terminationMessagePath",
        "terminationMessagePolicy", "ttlSecondsAfterFinished", "tty", "volumeDevices", "volumeMounts", "volumes",
    }
)  # fmt: skip
WORDS: dict[str, str] = {
    "image": "the program runs on the node as it is, the image is not used",
    "volumes": "a process sees the files of its node, no volume is mounted",
    "volumeMounts": "a process sees the files of its node, no volume is mounted",
    "ports": "a process may open any port, none is set up for it",
    "envFrom": "only env with a value is read, so these variables are not set",
    "affinity": "only a required node affinity that one set of labels can express is read",
    "topologySpreadConstraints": "tasks are not spread by constraints; gather keeps them together",
    "minResources": "is not needed: the requests of the members are counted themselves",
    "suspend": "nothing is held back: it waits for room and starts",
    "ttlSecondsAfterFinished": "ended jobs move to the history by themselves",
    "readinessProbe": "a task that runs counts as ready",
    "startupProbe": "a task that runs counts as ready",
    "livenessProbe": "a task is not probed: it ends when its process ends",
    "coordinator": "members find the first of them by PET_MASTER_ADDR",
    "alpha.jobset.sigs.k8s.io/exclusive-topology": "no domain is kept for one Job alone; gather keeps tasks together",
    "koordinator.sh/priority": "only priority and priorityClassName are read",
    "parallelModel": "ranks are laid out by index, neighbours next to each other",
}


def warn_unread(view: View) -> None:
    """Add a caution for every field of a document that was not read and might matter."""
    for where, key in view.left():
        path = where.at(key)
        if HARMLESS.fullmatch(path) or where.content[key] in DEFAULTS.get(key, ()):
            continue
        if view.source.for_plan and key in RUN_ONLY:
            continue
        where.caution(key, _word(where, key))


def _word(where: View, key: str) -> str:
    if key in WORDS:
        return WORDS[key]
    if where.path.endswith("metadata.labels"):
        return "is not kept: it is not a valid Kubernetes label, or one too many"
    if where.path.endswith("metadata.annotations"):
        return "is not read: annotations of a job are not kept"
    return NOT_READ
