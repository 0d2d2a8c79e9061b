"""How connections to a server are made: its URL, the files of TLS, and a proxy."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.kube.auth.proxies import environment_proxy

__all__ = ["Connection", "environment_proxy"]


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything that connections depend on, except for the content of the files. URLs may have passwords."""

    url: str = field(repr=False)
    """The server's base URL, without a slash at the end."""
    ca: str | None = None
    """A file with the CAs that must have signed the server's certificate; None for the system's CAs."""
    certificate: str | None = None
    """A file with our certificate."""
    key: str | None = None
    """A file with our certificate's key."""
    verify: bool = True
    """Whether the server's certificate is checked."""
    server_name: str | None = None
    """The name that the server's certificate must have, if it is not the URL's."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of a proxy."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that connections read."""
        return tuple(file for file in (self.ca, self.certificate, self.key) if file)
