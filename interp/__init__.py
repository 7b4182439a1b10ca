"""A calibrated instrument for the geometry of uncertainty inside language models.

    import interp
    model = interp.load("pythia-410m")
    record = interp.run(model, probes=["manifold"], prompts="mixed")
    record.findings["manifold"].to_frame("by_layer")

The public names are in `__init__.pyi`; each is imported at its first use.
"""

from pathlib import Path
from types import FunctionType
from typing import Any

import lazy_loader

# In a checkout the sibling packages lie beside this folder; in an installed package inside it.
_beside = Path(__file__).resolve().parent.parent
if (_beside / "pyproject.toml").is_file() and (_beside / "probes").is_dir():
    __path__.append(str(_beside))

_attached, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name; a function rejects unknown arguments with advice."""
    if name == "__version__":
        from importlib.metadata import version  # which takes longer than all else here

        return version("interp")
    if not name.startswith("_") and name not in __all__:
        from interp.errors import UnknownAttribute
        from interp.system.habits import function_of

        raise UnknownAttribute("attribute of interp", name, __all__, function_of(name))
    found = _attached(name)
    if not isinstance(found, FunctionType):
        return found
    from interp.system.calls import answering

    globals()[name] = answering(found)
    return globals()[name]
