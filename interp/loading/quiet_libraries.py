"""Keeps advice and progress bars of the libraries below off the user's terminal; errors are untouched."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from logging import CRITICAL
from typing import Any


@contextmanager
def quiet_libraries(*others: Any) -> Iterator[None]:
    """Only errors of transformers are heard inside, and no bar is drawn; everything is as before outside.

    Of `others`, modules `utils` of the hub's libraries, nothing is heard: their errors are told in our words.
    """
    from transformers.utils import logging  # here: reading prompts alone does not import it

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
