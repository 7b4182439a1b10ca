from .one_token_labels import find_labels as find_labels
from .pool import DOMAINS as DOMAINS
from .pool import mixed as mixed
from .sula import sula_prompts as sula_prompts
