"""What does each head and each layer carry?"""

from .probe import Heads as Heads
