"""The oldest libraries that `pyproject.toml` allows, as constraints for pip: `make test-lowest` installs them.

`>=2.0` means 2.0. torch is left out, because it is installed by its exact version.
"""

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
EXTRAS = ("hub",)
"""Optional parts that are held to their lowest versions too."""


def lowest(requirements: list[str]) -> list[str]:
    """`name==bound` for every `name>=bound`; a requirement of another form has no lower bound and is an error."""
    found = [re.fullmatch(r"([\w.-]+)>=([\w.]+)", each) for each in requirements]
    unbound = [each for each, match in zip(requirements, found, strict=True) if match is None]
    if unbound:
        raise ValueError(f"no lower bound in {', '.join(unbound)}: write NAME>=VERSION")
    return [f"{match[1]}=={match[2]}" for match in found if match and match[1] != "torch"]


if __name__ == "__main__":
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = [each for name in EXTRAS for each in project["optional-dependencies"][name]]
    print("\n".join(lowest([*project["dependencies"], *extras])))
