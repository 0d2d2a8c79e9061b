"""`python -m actors` is `executor-pods`."""

from __future__ import annotations

import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` handles it: Ctrl-C at once ends the imports, silently

from actors.cli.main import main  # noqa: E402 - after the line above

sys.exit(main())
