"""Phalanx: a scheduler for AI work.

    from phalanx import Client
    with Client() as cluster:
        job = cluster.submit(["python", "train.py"], gpus=2)
        job.wait(check=True)

Everything public is a name of this module: the clients, what they take and answer, and the errors they raise. Names
are imported when they are first used, so that `import phalanx` costs nothing. The reference in docs/reference/python.md
is made from this list.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.api.schema.apply import (
        AmendSpec,
        AppliedJob,
        ApplyReply,
        ApplyRequest,
        Called,
        DomainView,
        DraftView,
        LayerView,
        PlaceView,
        PlannedEviction,
        PlannedPlacement,
        PlanReason,
        PlanReply,
        PlanRequest,
        SeatView,
        TopologyView,
        WorkflowEstimate,
    )
    from phalanx.api.schema.approvals import ApprovalReply
    from phalanx.api.schema.changes import UpdateFields
    from phalanx.api.schema.cluster import (
        AccountsView,
        AuditLine,
        ClusterView,
        CoordinatorView,
        DeviceView,
        IsolationView,
        LayerSpec,
        NewToken,
        NodeView,
        NumaView,
        RemovedNode,
        TokenRequest,
        TokenView,
        TopologyReply,
        TopologySpec,
    )
    from phalanx.api.schema.documents import FailedTarget
    from phalanx.api.schema.files import FilesView, FileView
    from phalanx.api.schema.groupspec import AfterSpec, GatherSpec, GroupSpec
    from phalanx.api.schema.jobs import (
        CancelReply,
        ConditionView,
        Counts,
        DomainSlots,
        EnvironmentView,
        EvictReply,
        Fix,
        FormationView,
        GangView,
        GroupView,
        JobFilters,
        JobReason,
        JobView,
        NamedView,
        NodeReasons,
        Page,
        PromiseView,
        ReasonView,
        RequestView,
        StoryLine,
        TaskView,
        UsageSummary,
        WatchEvent,
        WhyReply,
    )
    from phalanx.api.schema.jobspec import (
        DraftSpec,
        GangSpec,
        JobSpec,
        NetworkSpec,
        RestartSpec,
        RuleSpec,
        SuccessSpec,
    )
    from phalanx.api.schema.log_times import LogRow, LogTimesView
    from phalanx.api.schema.logins import LoginRecord
    from phalanx.api.schema.overlay import AddressesView, NewReservation, ReservationView, ReserveRequest
    from phalanx.api.schema.queues import (
        ApprovalSpec,
        ApprovalView,
        QueueUserView,
        QueueView,
        QuotaSpec,
        QuotaView,
        UsageView,
        UserLimitsSpec,
        UserLimitsView,
    )
    from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, SessionTicket
    from phalanx.api.schema.submission import AcceptedTask, SubmitReply, SubmitRequest
    from phalanx.api.schema.submit_fields import GangFields, SubmitFields, SweepFields
    from phalanx.api.schema.usage import (
        CurvePoint,
        DeviceUsage,
        ReportReply,
        ReportRow,
        TaskUsage,
        UsageReply,
        UsageSums,
    )
    from phalanx.api.schema.vps import (
        NewVps,
        SnapshotRequest,
        SnapshotView,
        StoppedVps,
        VpsFields,
        VpsRequest,
        VpsView,
    )
    from phalanx.api.schema.workflows import (
        ConditionSpec,
        RetryReply,
        RetryRequest,
        StageSpec,
        StageView,
        SubmittedWorkflow,
        WorkflowRequest,
        WorkflowSpec,
        WorkflowView,
    )
    from phalanx.client.async_client import AsyncClient
    from phalanx.client.client import Client
    from phalanx.client.executor import Executor
    from phalanx.client.executor_jobs import CallFields
    from phalanx.client.ids import HasId
    from phalanx.client.job_handles import AsyncJobHandle, JobHandle
    from phalanx.client.log_calls import LogPiece
    from phalanx.client.log_output import AsyncLogBytes, LogBytes
    from phalanx.client.logins import DashboardAddress
    from phalanx.client.pickles import CallLost, RemoteTraceback
    from phalanx.client.session_calls import ExecResult, ExecSession, SessionAccess
    from phalanx.client.session_connection import AsyncExecSession
    from phalanx.client.stage_fields import StageFields
    from phalanx.client.submit_names import GangKeywords, SubmitKeywords
    from phalanx.client.waited_jobs import AsyncWaitedJob, WaitedJob
    from phalanx.client.workflow_files import WorkflowFileOptions
    from phalanx.client.workflow_handles import AsyncWorkflowHandle, WorkflowHandle
    from phalanx.client.workflows import AsyncWorkflowBuilder, ResultReference, StageHandle, WorkflowBuilder
    from phalanx.embedded import LocalCluster, local
    from phalanx.errors import (
        BadRequest,
        Busy,
        CallFailed,
        ConfigError,
        Conflict,
        Forbidden,
        Gone,
        JobFailed,
        NeverFits,
        NoRoom,
        NotActive,
        NotFound,
        PhalanxError,
        TokenError,
        TooLarge,
        TooMany,
        Unauthorized,
        Unavailable,
        Unconfirmed,
        Unprocessable,
        WrongMethod,
        WrongType,
    )
    from phalanx.tls import TlsFiles

    __version__: str

# fmt: off
__all__ = [
    "AcceptedTask", "AccountsView", "AddressesView", "AfterSpec", "AmendSpec", "AppliedJob", "ApplyReply",
    "ApplyRequest",
    "ApprovalReply", "ApprovalSpec", "ApprovalView", "AsyncClient", "AsyncExecSession", "AsyncJobHandle",
    "AsyncLogBytes", "AsyncWaitedJob", "AsyncWorkflowBuilder", "AsyncWorkflowHandle", "AuditLine", "BadRequest", "Busy",
    "CallFailed", "CallFields", "CallLost", "Called", "CancelReply",
    "Client", "ClusterView", "ConditionSpec", "ConditionView", "ConfigError", "Conflict", "CoordinatorView",
    "Counts", "CurvePoint", "DashboardAddress", "DeviceUsage", "DeviceView", "DomainSlots", "DomainView",
    "DraftSpec", "DraftView",
    "EnvironmentView", "EvictReply", "ExecRequest", "ExecResult", "ExecSession", "Executor", "FailedTarget",
    "FileView", "FilesView", "Fix", "Forbidden", "FormationView", "ForwardRequest", "GangFields",
    "GangKeywords", "GangSpec", "GangView", "GatherSpec", "Gone", "GroupSpec", "GroupView", "HasId", "IsolationView",
    "JobFailed", "JobFilters", "JobHandle", "JobReason", "JobSpec", "JobView", "LayerSpec", "LayerView", "LocalCluster",
    "LogBytes", "LogPiece", "LogRow", "LogTimesView", "LoginRecord", "NamedView", "NetworkSpec", "NeverFits",
    "NewReservation", "NewToken",
    "NewVps", "NoRoom", "NodeReasons", "NodeView", "NotActive", "NotFound", "NumaView", "Page", "PhalanxError",
    "PlaceView", "PlanReason", "PlanReply", "PlanRequest", "PlannedEviction", "PlannedPlacement", "PromiseView",
    "QueueUserView", "QueueView", "QuotaSpec", "QuotaView", "ReasonView", "RemoteTraceback", "RemovedNode",
    "ReportReply", "ReportRow", "RequestView", "ReservationView", "ReserveRequest", "RestartSpec",
    "ResultReference", "RetryReply", "RetryRequest", "RuleSpec", "SeatView", "SessionAccess", "SessionTicket",
    "SnapshotRequest", "SnapshotView", "StageFields", "StageHandle", "StageSpec", "StageView", "StoppedVps",
    "StoryLine", "SubmitFields", "SubmitKeywords", "SubmitReply", "SubmitRequest", "SubmittedWorkflow",
    "SuccessSpec", "SweepFields", "TaskUsage", "TaskView", "TlsFiles", "TokenError", "TokenRequest",
    "TokenView", "TooLarge", "TooMany", "TopologyReply", "TopologySpec", "TopologyView", "Unauthorized",
    "Unavailable", "Unconfirmed", "Unprocessable", "UpdateFields", "UsageReply", "UsageSummary", "UsageSums",
    "UsageView", "UserLimitsSpec", "UserLimitsView", "VpsFields", "VpsRequest", "VpsView", "WaitedJob", "WatchEvent",
    "WhyReply", "WorkflowBuilder", "WorkflowEstimate", "WorkflowFileOptions", "WorkflowHandle", "WorkflowRequest",
    "WorkflowSpec", "WorkflowView", "WrongMethod", "WrongType", "__version__", "local",
]
# fmt: on

# Where each public name is defined.
_MODULES = {
    "phalanx.api.schema.apply": (
        "AmendSpec AppliedJob ApplyReply ApplyRequest Called DomainView DraftView LayerView PlaceView "
        "PlanReason PlanReply PlanRequest PlannedEviction PlannedPlacement SeatView TopologyView "
        "WorkflowEstimate"
    ),
    "phalanx.api.schema.cluster": (
        "AccountsView AuditLine ClusterView CoordinatorView DeviceView IsolationView LayerSpec NewToken NodeView "
        "NumaView RemovedNode TokenRequest TokenView TopologyReply TopologySpec"
    ),
    "phalanx.api.schema.approvals": "ApprovalReply",
    "phalanx.api.schema.queues": (
        "ApprovalSpec ApprovalView QueueUserView QueueView QuotaSpec QuotaView UsageView UserLimitsSpec "
        "UserLimitsView"
    ),
    "phalanx.api.schema.changes": "UpdateFields",
    "phalanx.api.schema.documents": "FailedTarget",
    "phalanx.api.schema.files": "FileView FilesView",
    "phalanx.api.schema.log_times": "LogRow LogTimesView",
    "phalanx.api.schema.logins": "LoginRecord",
    "phalanx.client.log_calls": "LogPiece",
    "phalanx.client.logins": "DashboardAddress",
    "phalanx.api.schema.groupspec": "AfterSpec GatherSpec GroupSpec",
    "phalanx.api.schema.jobs": (
        "CancelReply ConditionView Counts DomainSlots EnvironmentView EvictReply Fix FormationView GangView GroupView "
        "JobFilters JobReason JobView NamedView NodeReasons Page PromiseView ReasonView RequestView StoryLine TaskView "
        "UsageSummary WatchEvent WhyReply"
    ),
    "phalanx.api.schema.jobspec": "DraftSpec GangSpec JobSpec NetworkSpec RestartSpec RuleSpec SuccessSpec",
    "phalanx.api.schema.vps": "NewVps SnapshotRequest SnapshotView StoppedVps VpsFields VpsRequest VpsView",
    "phalanx.api.schema.overlay": "AddressesView NewReservation ReservationView ReserveRequest",
    "phalanx.api.schema.usage": "CurvePoint DeviceUsage ReportReply ReportRow TaskUsage UsageReply UsageSums",
    "phalanx.api.schema.workflows": "ConditionSpec RetryReply RetryRequest StageSpec StageView SubmittedWorkflow"
    " WorkflowRequest WorkflowSpec WorkflowView",
    "phalanx.api.schema.sessions": "ExecRequest ForwardRequest SessionTicket",
    "phalanx.client.session_calls": "ExecResult ExecSession SessionAccess",
    "phalanx.client.session_connection": "AsyncExecSession",
    "phalanx.client.stage_fields": "StageFields",
    "phalanx.client.log_output": "AsyncLogBytes LogBytes",
    "phalanx.client.waited_jobs": "AsyncWaitedJob WaitedJob",
    "phalanx.client.workflow_files": "WorkflowFileOptions",
    "phalanx.client.workflow_handles": "AsyncWorkflowHandle WorkflowHandle",
    "phalanx.client.workflows": "AsyncWorkflowBuilder ResultReference StageHandle WorkflowBuilder",
    "phalanx.api.schema.submission": "AcceptedTask SubmitReply SubmitRequest",
    "phalanx.api.schema.submit_fields": "GangFields SubmitFields SweepFields",
    "phalanx.client.async_client": "AsyncClient",
    "phalanx.client.client": "Client",
    "phalanx.client.executor": "Executor",
    "phalanx.client.executor_jobs": "CallFields",
    "phalanx.client.ids": "HasId",
    "phalanx.client.job_handles": "AsyncJobHandle JobHandle",
    "phalanx.client.submit_names": "GangKeywords SubmitKeywords",
    "phalanx.client.pickles": "CallLost RemoteTraceback",
    "phalanx.embedded": "LocalCluster local",
    "phalanx.errors": (
        "BadRequest Busy CallFailed ConfigError Conflict Forbidden Gone JobFailed NeverFits NoRoom NotActive NotFound "
        "PhalanxError TokenError TooLarge TooMany Unauthorized Unavailable Unconfirmed Unprocessable "
        "WrongMethod WrongType"
    ),
    "phalanx.tls": "TlsFiles",
    "phalanx.version": "__version__",
}


def __getattr__(name: str) -> Any:
    return globals().setdefault(name, getattr(import_module(_home(name)), name))


def _home(name: str) -> str:
    for module, names in _MODULES.items():
        if name in names.split():
            return module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
