"""The published code's own reads, mistakes included, kept apart so that nothing uses them by accident.

Whatever is called `reference_...` reads what the code released with the papers reads
(github.com/vishalmisra/bayesian-wind-tunnel), which is not what it is called there. `interp.paper_code.reproduce` shows
each beside the right one; nothing else imports them.
"""

__all__ = ["reproduce"]
