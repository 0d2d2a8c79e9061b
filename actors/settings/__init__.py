"""Every setting of the library: `Settings`, its groups, and where their values come from.

The room owns no actor and handles no message. It reads and checks values once; it never changes them afterwards, and
never calls the API.
"""

from actors.settings.groups import (
    AllocationSettings,
    ApiSettings,
    BackendSettings,
    ExecutorSettings,
    RollSettings,
    SourceSettings,
    StoreSettings,
)
from actors.settings.model import Settings, SettingsValues
from actors.settings.pod_parts import (
    ClaimSettings,
    EnvFromSettings,
    EnvVarSettings,
    OomSettings,
    ResourceSettings,
    TolerationSettings,
)
from actors.settings.profiles import ProfileSettings
from actors.settings.values import ExecutorValues

__all__ = [
    "AllocationSettings",
    "ApiSettings",
    "BackendSettings",
    "ClaimSettings",
    "EnvFromSettings",
    "EnvVarSettings",
    "ExecutorSettings",
    "ExecutorValues",
    "OomSettings",
    "ProfileSettings",
    "ResourceSettings",
    "RollSettings",
    "Settings",
    "SettingsValues",
    "SourceSettings",
    "StoreSettings",
    "TolerationSettings",
]
