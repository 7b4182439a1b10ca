"""The wind tunnels: tasks with an exact posterior, networks trained on them, and how close they come.

Found by name through the entry points `interp.tunnels`; in Python `from interp.wind_tunnels import Bijection`. The
command `interp tunnel` trains, evaluates, sweeps and rebuilds.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
