"""Keeps warnings and progress bars of other libraries off the user's terminal; errors are raised as usual."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from logging import CRITICAL
from typing import Any


@contextmanager
def quiet_libraries(*others: Any) -> Iterator[None]:
    """Show only errors of transformers, and no progress bars, inside the block.

    `others` are `utils` modules of the hub's libraries, which show nothing, because their errors are raised again.
    """
    from transformers.utils import logging  # not needed to read prompts

    with ExitStack() as restored, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        restored.callback(logging.set_verbosity, logging.get_verbosity())
        logging.set_verbosity_error()
        if logging.is_progress_bar_enabled():
            restored.callback(logging.enable_progress_bar)
            logging.disable_progress_bar()
        for library in others:
            restored.callback(library.logging.set_verbosity, library.logging.get_verbosity())
            library.logging.set_verbosity(CRITICAL)
            if not library.are_progress_bars_disabled():
                restored.callback(library.enable_progress_bars)
                library.disable_progress_bars()
        yield
