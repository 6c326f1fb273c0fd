"""Makes the helpers beside this file importable from every test folder: `from oracles import …`."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
for folder in (str(TESTS.parent), str(TESTS)):
    if folder not in sys.path:
        sys.path.insert(0, folder)
