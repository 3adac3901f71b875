"""The page for those who come from FlowMesh: complete, and true where it says that a variable is accepted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from phalanx.api.server.routes.table import ROUTES
from phalanx.settings import KEYS
from phalanx.settings_aliases import ALIASES
from tests.tidy.source import ROOT

PAGE = (ROOT / "docs/guides/from-flowmesh.md").read_text(encoding="utf-8")
VARIABLES = [
    "REDIS_URL",
    "RESULTS_DIR",
    "ORCHESTRATOR_TOKEN",
    "ORCHESTRATOR_DISPATCH_MODE",
    "ORCHESTRATOR_WORKER_SELECTION",
    "ENABLE_CONTEXT_REUSE",
    "WORKER_CACHE_TTL_SEC",
    "ENABLE_TASK_MERGE",
    "TASK_MERGE_MAX_BATCH_SIZE",
    "ENABLE_STAGE_WEIGHT_STICKINESS",
    "SCHEDULER_LAMBDA_INFERENCE",
    "SCHEDULER_LAMBDA_TRAINING",
    "SCHEDULER_LAMBDA_OTHER",
    "SCHEDULER_SELECTION_JITTER",
    "ENABLE_ELASTIC_SCALING",
    "ELASTIC_AUTO_DISABLE_IDLE_SEC",
    "ELASTIC_AUTO_DISABLE_QUEUE_MAX",
    "ELASTIC_AUTO_ENABLE_QUEUE_THRESHOLD",
    "ELASTIC_AUTO_MIN_ACTIVE_WORKERS",
    "ELASTIC_AUTO_POLL_INTERVAL_SEC",
    "ELASTIC_AUTO_TOGGLE_COOLDOWN_SEC",
    "ENABLE_WORKER_WATCHDOG",
    "WORKER_DEATH_CHECK_INTERVAL",
    "WORKER_DEATH_GRACE_SEC",
    "HOST_METRICS_DIR",
    "ORCHESTRATOR_METRICS_DIR",
    "HOST_METRICS_ENABLE_DENSITY_PLOT",
    "HOST_METRICS_DENSITY_BUCKET_SEC",
    "LOG_FILE",
    "LOG_MAX_BYTES",
    "LOG_BACKUP_COUNT",
    "LOG_LEVEL",
    "HOST_APP_HOST",
    "HOST_APP_PORT",
    "PORT",
    "HOST_APP_RELOAD",
    "TASK_NO_WORKER_GRACE_SEC",
    "WORKER_REHYDRATION_GRACE_SEC",
    "WORKER_REAP_GRACE_SEC",
    "REDIS_CONTROL_URL",
    "REDIS_TELEMETRY_URL",
    "LOG_STREAM_*",
    "TASK_TOPIC",
    "HEARTBEAT_INTERVAL_SEC",
    "WORKER_ID",
    "WORKER_TAGS",
    "WORKER_COST_PER_HOUR",
    "WORKER_NETWORK_BANDWIDTH_BYTES_PER_SEC",
    "WORKER_EXECUTOR_MASK",
    "ORCHESTRATOR_BASE_URL",
    "RESULTS_UPLOAD_URL",
    "WORKER_LOG_TO_STDOUT",
]
REASONS = [
    "no_idle_worker",
    "no_selection",
    "sticky_worker_busy",
    "stage_reference_pending",
    "publish_failed",
    "no_subscribers",
    "dispatch_exception",
    "worker_failed",
    "worker_unregistered",
    "worker_heartbeat_expired",
    "static_worker_unavailable",
    "no_worker_ready",
    "missing_workflow_id",
    "missing_task_type",
    "candidate_workers_busy",
    "untried_workers_busy",
    "no_eligible_worker",
    "eligible_workers_exhausted",
    "no_dispatch_subscriber",
    "max_attempts_exceeded",
    "condition_not_met",
]
TYPES = [
    "inference",
    "rag",
    "diffusion",
    "api",
    "sft",
    "lora_sft",
    "ppo",
    "dpo",
    "training",
    "image_classification",
    "image_classification_training",
    "echo",
    "agent",
    "data_profiling",
    "data_retrieval",
    "embedding",
    "ssh",
    "serve",
    "python",
    "omni_text2image",
    "omni_text2speech",
    "omni_text2audio",
    "omni_text2video",
    "omni_text2general",
    "graph_template",
]
EVENTS = [
    "TASK_SUBMITTED",
    "TASK_STARTED",
    "TASK_SUCCEEDED",
    "TASK_FAILED",
    "TASK_REQUEUED",
    "TASK_UPDATE",
    "TASK_CANCELLED",
    "REGISTER",
    "UNREGISTER",
    "STATUS",
    "HEARTBEAT",
    "dependency_failure",
    "parent_task_id",
    "is_child_task",
    "merged_children",
]
FIELDS = [
    "apiVersion",
    "kind",
    "metadata.name",
    "metadata.owner",
    "metadata.annotations",
    "schedule_hint",
    "node_execution_order",
    "node_schedule_in_epoch_order",
    "selected_worker",
    "spec.taskType",
    "spec.stages",
    "spec.graph.nodes",
    "dependsOn",
    "condition",
    "resources.hardware.cpu",
    "resources.estimatedLoad",
    "output",
    "shard",
    "parallel",
    "model",
    "data",
    "inference",
    "training",
    "checkpoint",
    "_upstreamResults",
    "max_attempts",
]


def rows(heading: str) -> Iterator[list[str]]:
    """The rows of the table under a heading, without the line that names its columns."""
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


@pytest.mark.parametrize(
    "words",
    [VARIABLES, REASONS, TYPES, EVENTS, FIELDS],
    ids=["variables", "reasons", "types", "events", "fields"],
)
def test_everything_is_in_a_table(words: list[str]):
    first = {
        word for line in PAGE.splitlines() if line.startswith("| ") for word in quoted(line.split(" | ")[0])
    }
    assert [word for word in words if word not in first and word not in quoted(PAGE)] == []
    assert len(set(words)) == len(words)


def test_a_variable_that_is_said_to_be_accepted_is_accepted_for_that_setting():
    """Those of dispatch modes are looked up as soon as there is a setting of that name."""
    accepted, untold = {}, set(ALIASES)
    for heading in ("Variables of the host", "Variables of workers"):
        for variables, said, here in rows(heading):
            for name in quoted(variables):
                assert said in ("accepted", "no")
                assert (said == "accepted") or name not in ALIASES, name
                untold.discard(name)
                if said == "accepted":
                    accepted[name] = re.findall(r"`((?:scheduler|elastic|coordinator|runner)\.\w+)`", here)[0]
    assert len(accepted) == 23
    known = {name: key for name, key in accepted.items() if key in KEYS}
    assert {name: ALIASES.get(name, ("-",))[0] for name in known} == known
    assert all(key.startswith("scheduler.") for name, key in accepted.items() if name not in known)
    assert {name for name in untold if not name.startswith(("KRISHIV_", "OTEL_"))} == set()


def test_settings_and_addresses_that_are_named_exist():
    keys = set(re.findall(r"`((?:elastic|coordinator|runner)\.[a-z_]+)[`\s]", PAGE))
    assert len(keys) > 20
    assert sorted(keys - set(KEYS)) == []
    paths = {re.sub(r"\{\w+\}", "{}", route.path) for route in ROUTES}
    named = {
        re.sub(r"\{\w+\}", "{}", path)
        for *_, here in rows("Addresses")
        for path in re.findall(r"(/v1/[a-z0-9/{}.]+)", here)
    }
    assert len(named) > 12
    assert sorted(named - paths) == []
