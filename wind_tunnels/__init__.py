"""Wind tunnels: tasks with an exact posterior, and networks trained on them (`interp tunnel`)."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
