"""The prompt sets: texts of our own in six domains, and sets made for a tokenizer whose exact posterior is known.

Found by name through the entry points `interp.prompts`; in Python `from interp.prompts import sula_prompts`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
