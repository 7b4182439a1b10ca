"""Does attention sharpen with depth?"""

from .probe import AttentionEntropy as AttentionEntropy
