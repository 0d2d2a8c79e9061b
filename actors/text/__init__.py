"""Text from outside, as text: on one line, with every character that acts escaped, and of bounded length.

Messages of containers, refusals of webhooks, names in a kubeconfig: their authors are strangers. A line break in one
forges a line of the log, an escape sequence acts on the terminal, a bidi mark shows a name backwards. Errors, loss
reasons and reports are made with `one_line`, and every logger of the library comes from `get_logger`. `JsonReady` shows
values as JSON. `warn_deprecated` words every deprecation. The room never decides what a text means.
"""

from actors.text.ages import age
from actors.text.deprecation import warn_deprecated
from actors.text.escape import LONGEST_TEXT, one_line
from actors.text.json_values import JsonReady, rfc3339
from actors.text.logger import (
    LONGEST_LINE,
    Log,
    fields_of,
    get_logger,
    guard_logs_of,
    log_with,
    logging_survived,
    unmute,
)

__all__ = [
    "LONGEST_LINE",
    "LONGEST_TEXT",
    "JsonReady",
    "Log",
    "age",
    "fields_of",
    "get_logger",
    "guard_logs_of",
    "log_with",
    "logging_survived",
    "one_line",
    "rfc3339",
    "unmute",
    "warn_deprecated",
]
