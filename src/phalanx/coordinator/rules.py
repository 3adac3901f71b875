"""The rules by which a coordinator decides, as they follow from its settings."""

from __future__ import annotations

from phalanx.core.cluster.state import Timers
from phalanx.core.model.dispatch import DispatchPolicy
from phalanx.core.model.elastic import ElasticRules
from phalanx.core.model.overlay import OverlayRules
from phalanx.routes import check_subnet
from phalanx.settings import Settings
from phalanx.settings_elastic import Elastic
from phalanx.settings_overlay import OverlaySettings
from phalanx.settings_scheduler import Scheduler


def rules_of(settings: Settings) -> Timers:
    """The rules that follow from the settings: a runner stops its tasks well before it may be declared lost."""
    section = settings.coordinator
    return Timers(
        heartbeat_s=section.heartbeat_s,
        lost_after_s=section.lost_after_s,
        self_fence_s=section.lost_after_s * 2 / 3,
        loss_limit=section.loss_limit,
        aging_s=float(section.aging_s),
        elastic=elastic_of(settings.elastic),
        dispatch=dispatch_policy_of(settings.scheduler),
        stuck_after_s=3 * section.lost_after_s,
        breaker_failures=section.breaker_failures,
        breaker_pause_s=section.breaker_pause_s,
        brake_share=section.brake_share,
        pending_max=section.pending_limit,
        overlay=overlay_of(settings.overlay),
    )


def overlay_of(section: OverlaySettings) -> OverlayRules:
    """The overlay network's addresses."""
    if section.mode == "off":
        return OverlayRules()
    check_subnet(section.subnet)
    return OverlayRules(
        section.subnet, section.block_prefix, section.quarantine_s, section.encryption == "wireguard"
    )


def dispatch_policy_of(section: Scheduler) -> DispatchPolicy:
    """How stages of workflows are given their nodes: each setting has the name of its field, but for the mode."""
    fields = set(DispatchPolicy.__struct_fields__) - {"mode"}
    return DispatchPolicy(mode=section.dispatch_mode, **{name: getattr(section, name) for name in fields})


def elastic_of(section: Elastic) -> ElasticRules:
    """When elastic nodes are disabled and enabled."""
    return ElasticRules(
        mode=section.mode,
        notifies=section.webhook is not None or bool(section.command),
        idle_s=section.idle_s,
        queue_max=section.queue_max,
        queue_threshold=section.queue_threshold,
        active_min=section.active_min,
        poll_s=section.poll_s,
        cooldown_s=section.left_alone_s,
    )
