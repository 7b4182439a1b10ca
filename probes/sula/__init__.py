"""Does evidence in context move the model's answer as Bayes' rule says?"""

from .probe import Sula as Sula
