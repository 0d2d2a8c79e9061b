"""The types of the values that each group of settings is made from, for type checkers and editors.

`Settings(executor={"instances": 3})` takes plain values: a dict instead of a group, "5s" instead of a timedelta. The
models hold what they become. A test compares the keys here with the fields of the models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path
    from typing import TypeAlias

    from actors.pods.loss_kind import LossKind
    from actors.settings.pod_parts import (
        ClaimSettings,
        ClaimValues,
        EnvFromSettings,
        EnvFromValues,
        EnvVarSettings,
        EnvVarValues,
        OomSettings,
        OomValues,
        ResourceSettings,
        ResourceValues,
        TolerationSettings,
        TolerationValues,
    )
    from actors.settings.types import OnSigterm, Owner, Pacing, Ready, ReplacementPolicy, RollPolicy, Switch

    Duration: TypeAlias = str | timedelta
    ByteSize: TypeAlias = str | int
    Template: TypeAlias = Mapping[str, Any] | str | Path
    Words: TypeAlias = list[str] | tuple[str, ...]
    """No `Sequence[str]`: text is one too."""

__all__ = [
    "AllocationValues",
    "ApiValues",
    "BackendValues",
    "ExecutorValues",
    "ProfileValues",
    "RollValues",
    "SourceValues",
    "StoreValues",
]


class ApiValues(TypedDict, total=False):
    """What `ApiSettings` is made from."""

    max_retry_after: Duration
    max_answer_size: ByteSize
    max_object_size: ByteSize
    max_header_size: ByteSize
    max_pages: int
    max_pods: int


class ProfileValues(TypedDict, total=False):
    """What `ProfileSettings` is made from."""

    instances: int
    warm: int | None
    max_executors: int | None
    ready: Ready
    max_leases: int | None
    max_age: Duration | None
    image: str | None
    command: Words | None
    args: Words | None
    drain_timeout: Duration | None
    drain_command: Words | None
    stop_grace_period: Duration | None
    share_process_namespace: bool | None
    working_dir: str | None
    env: Mapping[str, str | EnvVarSettings | EnvVarValues] | None
    env_from: Sequence[EnvFromSettings | EnvFromValues]
    pod_template: Template | None
    template_patch: Template | None
    resources: ResourceSettings | ResourceValues | None
    node_selector: Mapping[str, str] | None
    tolerations: Sequence[TolerationSettings | TolerationValues]
    priority_class: str | None
    service_account: str | None
    image_pull_secrets: Words
    labels: Mapping[str, str] | None
    annotations: Mapping[str, str] | None
    claims: Sequence[ClaimSettings | ClaimValues]
    on_oom: OomSettings | OomValues | None
    replace: Literal["always", "never"] | Collection[LossKind | str]


class ExecutorValues(ProfileValues, total=False):
    """What `ExecutorSettings` is made from."""

    container: str
    prefix: str | None
    api_polling_interval: Duration
    polling_from_cache: bool
    event_processing_interval: Duration
    delete_on_termination: bool
    missing_pod_detect_delta: Duration
    check_all_containers: bool
    removed_executors_ttl: Duration
    kill_grace_period: Duration
    max_failures: int | None
    failures_validity_interval: Duration | None
    stuck_timeout: Duration
    min_run_time: Duration
    disconnect_timeout: Duration
    terminating_timeout: Duration
    kill_label: str | None
    decommission_label: str | None
    decommission_deletion_cost: int | None
    owned_by: Owner
    own_claims: bool
    reuse_claims: bool
    wait_to_reuse_claim: bool


class AllocationValues(TypedDict, total=False):
    """What `AllocationSettings` is made from."""

    batch_size: int
    max_batch_size: int
    batch_delay: Duration
    creation_timeout: Duration
    idle_timeout: Duration
    max_pending_pods: int | None
    max_pending_pods_per_profile: int | None
    max_created: int | None
    pacing: Pacing
    pod_replacement_policy: ReplacementPolicy
    max_requests_in_flight: int
    max_requests_per_second: float | None


class SourceValues(TypedDict, total=False):
    """What `SourceSettings` is made from."""

    process: bool
    stale_after: Duration
    streaming_list: bool
    inactivity_timeout: Duration


class StoreValues(TypedDict, total=False):
    """What `StoreSettings` is made from."""

    min_round_interval: Duration


class BackendValues(TypedDict, total=False):
    """What `BackendSettings` is made from."""

    min_registered_ratio: float
    start_timeout: Duration
    request_timeout: Duration
    shutdown_timeout: Duration | None
    hang_timeout: Duration
    delete_on_stop: bool
    on_sigterm: OnSigterm
    delete_inactive_on_stop: bool
    driver_ready_timeout: Duration
    lease: Switch
    lease_duration: Duration
    kubernetes_events: bool


class RollValues(TypedDict, total=False):
    """What `RollSettings` is made from."""

    interval: Duration | None
    policy: RollPolicy
