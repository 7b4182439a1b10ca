"""What do the last layers do that the others do not?"""

from .probe import DepthUse as DepthUse
