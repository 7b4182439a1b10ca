"""The version of the package that is installed, `interp.__version__`."""

from importlib.metadata import version

__version__ = version("interp")
