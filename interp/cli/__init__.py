"""The command line, its tables, and what the shell offers on TAB."""

from interp.cli.app import main as main

__all__ = ["completion", "saved", "tables", "terminal"]
