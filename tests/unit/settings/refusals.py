"""What settings are refused with."""

from __future__ import annotations

from typing import Any

import pytest

from actors.errors import SettingsError
from actors.settings import Settings

__all__ = ["refused"]


def refused(**values: Any) -> list[str]:
    """The lines of the error that these settings raise."""
    with pytest.raises(SettingsError) as raised:
        Settings(**values)
    return str(raised.value).splitlines()
