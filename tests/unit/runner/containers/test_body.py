"""What a runtime is asked for: never privileged, few rights, nothing of the node that is not listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.runner.containers.body import docker_body, podman_body

if TYPE_CHECKING:
    from phalanx.runner.containers.body import ContainerSpec

SPEC: ContainerSpec = {
    "socket": "/run/s",
    "kind": "podman",
    "name": "phalanx-a-job-0-1",
    "labels": {"io.phalanx.node": "a"},
    "image": "sha256:1",
    "rootfs": "",
    "beside": [],
    "argv": ["python", "train.py"],
    "cwd": "/work",
    "env": {},
    "account": (1000, 1000, [1000, 20]),
    "capabilities": [],
    "mounts": [{"source": "/data", "target": "/mnt", "read_only": True}],
    "own_mounts": [{"source": "/s/artifacts", "target": "/s/artifacts", "read_only": False}],
    "allowed": ["/data"],
    "closed": [],
    "has_network": False,
    "hostname": "exp-worker-0-0",
    "devices": ["/dev/nvidia0"],
    "device_names": [],
    "device_driver": "cdi",
    "is_tracked": True,
    "pid_file": "/s/pid",
    "result": "/s/artifacts/r",
    "stdin": False,
}


def test_podman():
    body = podman_body(SPEC, {"A": "1"}, 42)
    assert (body["privileged"], body["no_new_privileges"], body["cap_drop"], body["cap_add"]) == (
        False,
        True,
        ["ALL"],
        [],
    )
    assert (body["user"], body["groups"]) == ("1000:1000", ["1000", "20"])
    assert body["netns"] == {"nsmode": "host"}
    assert [each["options"] for each in body["mounts"]] == [
        ["rbind", "nosuid", "nodev", "rw"],
        ["rbind", "nosuid", "nodev", "ro"],
    ]
    assert body["entrypoint"] == ["python", "train.py"]
    assert "rootfs" not in body
    inside = podman_body({**SPEC, "has_network": True, "rootfs": "/r", "image": "", "account": None}, {}, 42)
    assert inside["netns"] == {"nsmode": "path", "value": "/proc/42/ns/net"}
    assert (inside["rootfs"], inside["rootfs_overlay"], "user" in inside) == ("/r", True, False)


def test_docker():
    body = docker_body(SPEC, {"A": "1"})
    host = body["HostConfig"]
    assert (host["Privileged"], host["SecurityOpt"], host["CapDrop"], host["CapAdd"]) == (
        False,
        ["no-new-privileges"],
        ["ALL"],
        [],
    )
    assert (body["User"], body["Env"], "GroupAdd" in host) == ("1000:1000", ["A=1"], False)
    assert [each["ReadOnly"] for each in host["Mounts"]] == [False, True]
