"""The spelling of everything that is read, and words that we do not use where users read."""

import re
import subprocess
import sys

import pytest

from tests.paths import ROOT

UNUSED = {
    r"go(?:es)? on with": "resumes",
    r"gone on with": "resumed",
    r"going on with(?:out)?": "resuming, continuing",
    r"(?:is|are) put to each": "is measured on",
    r"means what it says": "say what it means",
    r"stands? in its place": "say where",
    r"what it tells": "what it says",
    r"(?:is|are) lent": "uses",
    r"read-outs?": "readout",
    r"refused in words": "rejected with a message",
    r"held against": "compared with",
    r"made-up": "simulated",
}
"""Phrases of our own, and what to write instead: the table in CONTRIBUTING.md has more of them, and the reasons."""

PRODUCT = ("interp", "probes", "prompts", "wind_tunnels", "reports")
READ = ("README.md", "docs/**/*.md", "reports/templates/*.html", *(f"{room}/**/*.py" for room in PRODUCT))
"""What users read: the documents, the templates of pages, and all code, whose docstrings and messages they meet."""


def found(text):
    return [phrase for phrase in UNUSED if re.search(rf"\b{phrase}\b", text, re.IGNORECASE)]


def test_users_are_not_met_with_phrases_of_our_own():
    files = [path for pattern in READ for path in ROOT.glob(pattern)]
    assert len(files) > 30
    used = {str(path.relative_to(ROOT)): found(path.read_text(encoding="utf-8")) for path in files}
    assert {name: phrases for name, phrases in used.items() if phrases} == {}
    assert found("The same command Goes on with it.") == [r"go(?:es)? on with"]


def test_everything_is_spelt_right():
    pytest.importorskip("codespell_lib", reason="codespell is not installed")
    kinds = ("*.py", "*.pyi", "*.md", "*.toml", "*.html")
    listed = subprocess.run(["git", "ls-files", *kinds], capture_output=True, text=True, cwd=ROOT, check=True)
    kept = [name for name in listed.stdout.splitlines() if "vendor" not in name and "examples/pages" not in name]
    called = [sys.executable, "-m", "codespell_lib", *kept]
    done = subprocess.run(called, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
