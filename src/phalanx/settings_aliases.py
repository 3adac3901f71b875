"""Settings by the names that other systems have for them, as variables of the environment."""

from __future__ import annotations

# Names of Krishiv and of FlowMesh. One that both sides read stands for a key of each.
ALIASES: dict[str, tuple[str, ...]] = {
    "KRISHIV_COORDINATOR": ("client.address",),
    "KRISHIV_COORDINATOR_BEARER_TOKEN": ("client.token", "coordinator.token"),
    "KRISHIV_COORDINATOR_BEARER_TOKENS": ("coordinator.tokens",),
    "KRISHIV_COORDINATOR_BEARER_TOKEN_FILE": ("client.token_file", "coordinator.token_file"),
    "KRISHIV_COORDINATOR_AUTH_RELOAD_INTERVAL_SECS": ("coordinator.auth_reload_interval_s",),
    "KRISHIV_EXECUTOR_TASK_BEARER_TOKEN": ("runner.token", "coordinator.node_token"),
    "KRISHIV_MAX_TASK_RETRIES": ("coordinator.max_task_retries",),
    "KRISHIV_HEARTBEAT_TIMEOUT_SECS": ("coordinator.lost_after_s",),
    "KRISHIV_LEADER_LEASE_SECS": ("coordinator.lease_s",),
    "HOST_METRICS_DIR": ("coordinator.metrics_dir",),
    "ORCHESTRATOR_METRICS_DIR": ("coordinator.metrics_dir",),
    "HOST_METRICS_ENABLE_DENSITY_PLOT": ("coordinator.metrics_density",),
    "HOST_METRICS_DENSITY_BUCKET_SEC": ("coordinator.metrics_density_bucket_s",),
    "WORKER_COST_PER_HOUR": ("runner.cost_per_hour",),
    "ORCHESTRATOR_DISPATCH_MODE": ("scheduler.dispatch_mode",),
    "ORCHESTRATOR_WORKER_SELECTION": ("scheduler.selection",),
    "SCHEDULER_LAMBDA_INFERENCE": ("scheduler.weight_inference",),
    "SCHEDULER_LAMBDA_TRAINING": ("scheduler.weight_training",),
    "SCHEDULER_LAMBDA_OTHER": ("scheduler.weight_other",),
    "SCHEDULER_SELECTION_JITTER": ("scheduler.jitter",),
    "ENABLE_CONTEXT_REUSE": ("scheduler.reuse",),
    "WORKER_CACHE_TTL_SEC": ("scheduler.reuse_s",),
    "ENABLE_TASK_MERGE": ("scheduler.merge",),
    "TASK_MERGE_MAX_BATCH_SIZE": ("scheduler.merge_max",),
    "ENABLE_STAGE_WEIGHT_STICKINESS": ("scheduler.sticky",),
    "ENABLE_ELASTIC_SCALING": ("elastic.mode",),
    "ELASTIC_AUTO_DISABLE_IDLE_SEC": ("elastic.idle_s",),
    "ELASTIC_AUTO_DISABLE_QUEUE_MAX": ("elastic.queue_max",),
    "ELASTIC_AUTO_ENABLE_QUEUE_THRESHOLD": ("elastic.queue_threshold",),
    "ELASTIC_AUTO_MIN_ACTIVE_WORKERS": ("elastic.active_min",),
    "ELASTIC_AUTO_POLL_INTERVAL_SEC": ("elastic.poll_s",),
    "ELASTIC_AUTO_TOGGLE_COOLDOWN_SEC": ("elastic.cooldown_s",),
}
