"""`python -m actors` is `executor-pods`."""

from __future__ import annotations

import sys

from actors.cli.main import main

sys.exit(main())
