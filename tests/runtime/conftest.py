"""Workers must be importable by name in child processes, which take the driver's path along."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
