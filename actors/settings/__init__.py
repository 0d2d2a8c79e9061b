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
from actors.settings.model import Settings
from actors.settings.profiles import ClaimSettings, ProfileSettings, ResourceSettings

__all__ = [
    "AllocationSettings",
    "ApiSettings",
    "BackendSettings",
    "ClaimSettings",
    "ExecutorSettings",
    "ProfileSettings",
    "ResourceSettings",
    "RollSettings",
    "Settings",
    "SourceSettings",
    "StoreSettings",
]
