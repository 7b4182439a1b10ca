"""Which block writes the prediction, and does depth refine it?"""

from .probe import Components as Components
