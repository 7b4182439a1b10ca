from .tasks.bijection import Bijection as Bijection
from .tasks.coin import Coin as Coin
from .tasks.hmm import HMM as HMM
from .tasks.hmm_fixed import FixedHMM as FixedHMM
from .tasks.mess3 import Mess3 as Mess3
from .tasks.mixture import Mixture as Mixture
from .tasks.recall import Recall as Recall
from .tasks.regression import Regression as Regression
