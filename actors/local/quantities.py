"""Kubernetes quantities; how they are read stands in `actors.quantities`, for the settings have some too."""

from __future__ import annotations

from actors.quantities import format_quantity, parse_quantity

__all__ = ["format_quantity", "parse_quantity"]
