"""How `interp` is installed: one import name; its sibling packages lie inside it, in a checkout beside it."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SIBLINGS = ("probes", "prompts", "wind_tunnels", "reports")

FINDER = '''"""Finds the package `interp` of a checkout, and nothing else that lies in it."""

import importlib.util
import sys
from importlib.machinery import PathFinder


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "interp":
            return None
        found = PathFinder.find_spec(name)
        if found is not None and found.origin is not None:
            return found
        # Nothing, or a folder of that name without a package in it, such as the one the checkout was cloned into.
        return importlib.util.spec_from_file_location(name, {path!r})


sys.meta_path.insert(0, Finder)
'''


class Layout(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "sdist":
            return  # as the repository lies
        if version != "editable":
            build_data["force_include"].update({name: f"interp/{name}" for name in SIBLINGS})
            return
        # A path entry would offer `prompts`, `reports` and `tests` to every script, in front of folders of its own.
        out = Path(self.directory)
        out.mkdir(parents=True, exist_ok=True)
        package = str(Path(self.root) / "interp" / "__init__.py")
        (out / "_interp_checkout.py").write_text(FINDER.replace("{path!r}", repr(package)), encoding="utf-8")
        (out / "interp_checkout.pth").write_text("import _interp_checkout\n", encoding="utf-8")
        written = ("_interp_checkout.py", "interp_checkout.pth")
        build_data["force_include_editable"].update({str(out / name): name for name in written})
