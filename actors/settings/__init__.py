"""Every setting: `Settings` and its groups."""

from actors.settings.groups import (
    AllocationSettings,
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
