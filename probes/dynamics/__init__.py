"""What settles first over a training: attention, values, weights or error?"""

from .probe import Dynamics as Dynamics

__all__ = ["exchange"]
