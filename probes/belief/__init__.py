"""Can the exact belief be read off the activations, and does the model use it?"""

from .probe import Belief as Belief
