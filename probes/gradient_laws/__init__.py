"""Do gradients of attention follow their laws, and what do they move?"""

from .study import GradientLaws as GradientLaws
