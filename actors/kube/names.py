"""The rules for names, label keys and label values. Each function returns the problem in Kubernetes' text, or None."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "dns_label_problem",
    "dns_subdomain_problem",
    "label_key_problem",
    "label_value_problem",
    "port_name_problems",
]

_MAX_SUBDOMAIN: Final = 253
_MAX_LABEL: Final = 63
_MAX_PORT_NAME: Final = 15

_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = rf"({_QUALIFIED})?"

_QUALIFIED_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)

_IS_DNS_LABEL: Final = re.compile(_DNS_LABEL)
_IS_DNS_SUBDOMAIN: Final = re.compile(_DNS_SUBDOMAIN)
_IS_QUALIFIED: Final = re.compile(_QUALIFIED)
_IS_PORT_NAME: Final = re.compile("[-a-z0-9]+")
_IS_LABEL_VALUE: Final = re.compile(_LABEL_VALUE)


def dns_label_problem(name: str) -> str | None:
    """Check an RFC 1123 label: the name of a container, a namespace, a volume."""
    if len(name) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} characters"
    if _IS_DNS_LABEL.fullmatch(name):
        return None
    if _IS_DNS_SUBDOMAIN.fullmatch(name):
        return "must not contain dots"
    return (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_DNS_LABEL}')"
    )


def dns_subdomain_problem(name: str) -> str | None:
    """Check an RFC 1123 subdomain: the name of most objects."""
    if len(name) > _MAX_SUBDOMAIN:
        return f"must be no more than {_MAX_SUBDOMAIN} characters"
    if _IS_DNS_SUBDOMAIN.fullmatch(name):
        return None
    return (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        f"'{_DNS_SUBDOMAIN}')"
    )


def label_key_problem(key: str) -> str | None:
    """Check the key of a label or annotation: `name`, or `dns.prefix/name`."""
    if key.count("/") > 1:
        prefixed = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return f"a qualified name {_QUALIFIED_RULE} {prefixed}"
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (problem := dns_subdomain_problem(prefix)):
        return f"prefix part {problem}"
    if not name:
        return "name part must be non-empty"
    if len(name) > _MAX_LABEL:
        return f"name part must be no more than {_MAX_LABEL} characters"
    if _IS_QUALIFIED.fullmatch(name):
        return None
    return f"name part {_QUALIFIED_RULE}"


def label_value_problem(value: str) -> str | None:
    """Check the value of a label."""
    if len(value) > _MAX_LABEL:
        return f"must be no more than {_MAX_LABEL} characters"
    if _IS_LABEL_VALUE.fullmatch(value):
        return None
    return (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
        "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
        f"validation is '{_LABEL_VALUE}')"
    )


def port_name_problems(name: str) -> list[str]:
    """Return the problems of an IANA service name, as ports have them."""
    rules = (
        (len(name) <= _MAX_PORT_NAME, f"must be no more than {_MAX_PORT_NAME} characters"),
        (_IS_PORT_NAME.fullmatch(name), "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (re.search("[a-z]", name), "must contain at least one letter (a-z)"),
        ("--" not in name, "must not contain consecutive hyphens"),
        (not name.startswith("-") and not name.endswith("-"), "must not begin or end with a hyphen"),
    )
    return [problem for holds, problem in rules if not holds]
