"""Every setting: `Settings` and its groups."""

from actors.settings.model import (
    AllocationSettings,
    BackendSettings,
    ClaimSettings,
    ExecutorSettings,
    ProfileSettings,
    ResourceSettings,
    RollSettings,
    Settings,
    SourceSettings,
    StoreSettings,
)

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
