"""Are keys closer to orthogonal than random directions of their dimension?"""

from .probe import Orthogonality as Orthogonality
