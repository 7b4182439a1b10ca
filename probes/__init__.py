"""The probes: one folder each with its question, measures, tables and figures; `measures` is what several share.

Found by name through the entry points `interp.probes`; in Python `from interp.probes import Manifold`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
