"""Is what the model infers held in the directions that its prediction depends on?"""

from .probe import Workspace as Workspace
