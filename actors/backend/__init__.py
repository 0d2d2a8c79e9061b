"""The Backend: the facade, its children, its start and its stop."""

from actors.backend.backend import Backend

__all__ = ["Backend"]
