"""Which names and labels Kubernetes allows; the rules stand in `actors.names`, for settings are held to them too."""

from __future__ import annotations

from actors.names import (
    dns_label_problem,
    dns_subdomain_problem,
    label_key_problem,
    label_value_problem,
    port_name_problems,
)

__all__ = [
    "dns_label_problem",
    "dns_subdomain_problem",
    "label_key_problem",
    "label_value_problem",
    "port_name_problems",
]
