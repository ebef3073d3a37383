"""The floor, in a process of its own like the peers.

python -m benchmarks.peers.with_floor SOCKET DATABASE
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.floor import Floor
from benchmarks.peers.peer import serve

if __name__ == "__main__":
    serve(Floor(Path(sys.argv[1]), sys.argv[2]))
