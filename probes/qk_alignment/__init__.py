"""Do queries choose keys by content?"""

from .probe import QKAlignment as QKAlignment
