"""How `interp` is installed: one import name, with its sibling packages inside it, and a README for the package index.

`make released` runs this file once, on the day of the first release: see CONTRIBUTING.md.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SIBLINGS = ("probes", "prompts", "wind_tunnels", "reports")

CHANGED_BY_RELEASE = ("README.md", "CITATION.cff", "docs/start/install.md", "examples/real-model.ipynb")
BLOCKS = re.compile(r"<!-- before release -->\n.*?<!-- after release:\n(.*?)-->\n", re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def released(text: str) -> str:
    """A text as it reads once the package is on the index: `pip install interp` instead of a checkout."""
    text = BLOCKS.sub(r"\1", text).replace("pip install .", "pip install interp")
    return re.sub(r"^# after release: ", "", text, flags=re.MULTILINE)


def absolute(text: str, urls: Mapping[str, str]) -> str:
    """Relative links of the README made absolute: pages of `docs/` to the site, other files to the repository."""
    raw = urls["Repository"].replace("github.com", "raw.githubusercontent.com")

    def replace(link: re.Match[str]) -> str:
        picture, words, target, anchor = link.groups(default="")
        if picture:
            url = f"{raw}/main/{target}"
        elif target.startswith("docs/"):
            page = target.removeprefix("docs/").removesuffix(".md").removesuffix("index").strip("/")
            url = f"{urls['Documentation']}{page}/" if page else urls["Documentation"]
        else:
            url = f"{urls['Repository']}/blob/main/{target}"
        return f"{picture}[{words}]({url}{anchor})"

    return LINK.sub(replace, text)


class Readme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(released(text), metadata["urls"])}


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


if __name__ == "__main__":
    for name in CHANGED_BY_RELEASE:
        file = Path(__file__).parent / name
        file.write_text(released(file.read_text(encoding="utf-8")), encoding="utf-8")
