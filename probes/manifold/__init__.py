"""Do values lie on few dimensions, and does entropy order them?"""

from .probe import Manifold as Manifold
