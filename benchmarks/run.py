"""`make bench`: every measurement in one run. Works as `python -m benchmarks.run` and as `python benchmarks/run.py`.

Options: --quick, --peers, --compiled, --only, --keep, --write (see --help).
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from benchmarks.suite import main

    sys.exit(main())
