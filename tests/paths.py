"""Where things lie: the checkout, and beside it models and tokenizers that are no part of it."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
