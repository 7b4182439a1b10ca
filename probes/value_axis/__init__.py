"""Which axis of the values reads uncertainty off, beyond length, position and last token?"""

from .probe import ValueAxis as ValueAxis
