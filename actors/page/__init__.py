"""The page of a fleet: what it does and has done, for people and programs, over HTTP.

It is fed with every message to the driver, asks the Backend while somebody looks, and serves the page, its JSON, probes
and metrics from a thread of its own. It changes nothing, unless the driver gave it a token: then it passes on the
actions of whoever shows that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.page.feed import Page
    from actors.page.page import serve_page

__all__ = ["Page", "serve_page"]


if not TYPE_CHECKING:  # as in `actors`

    def __getattr__(name: str) -> Any:
        """Import a public name on first use: the history and its documents need no server."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from actors.page import page  # noqa: PLC0415 - as it says

        return getattr(page, name)
