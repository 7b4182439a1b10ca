"""Keeps warnings and progress bars of other libraries off the user's terminal; errors are raised as usual."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from logging import CRITICAL
from typing import Any


@contextmanager
def quiet_libraries(*others: Any) -> Iterator[None]:
    """Show only errors of transformers, and no progress bars, inside the block.

    `others` are `utils` modules of the hub's libraries, which show nothing, because their errors are raised again.
    """
    from tqdm.std import tqdm
    from transformers.utils import logging  # not needed to read prompts

    with ExitStack() as restored, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restored.callback(logging.set_verbosity, logging.get_verbosity())
        logging.set_verbosity_error()
        restored.callback(setattr, tqdm, "__init__", vars(tqdm)["__init__"])
        setattr(tqdm, "__init__", partialmethod(tqdm.__init__, disable=True))  # noqa: B010 (a type checker objects)
        for library in others:
            restored.callback(library.logging.set_verbosity, library.logging.get_verbosity())
            library.logging.set_verbosity(CRITICAL)
        yield
