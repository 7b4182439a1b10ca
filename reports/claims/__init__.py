"""The papers' claims as data, a file each; `interp/ledger/claims.py` says what such a file may hold."""

from pathlib import Path

HOME = Path(__file__).parent

PAPER1, PAPER2, PAPER3 = (HOME / f"paper{n}.toml" for n in (1, 2, 3))
NEWER = HOME / "newer.toml"
