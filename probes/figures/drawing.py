"""What the figures of the probes share with those of studies (`interp.drawing`)."""

from interp.drawing import (
    ENTROPY_SCALE,
    NULL,
    PALETTE,
    VALUE,
    add_band,
    add_null_band,
    add_profile,
    add_slider,
    blank,
    error_bars,
    faded,
)

__all__ = [
    "ENTROPY_SCALE", "NULL", "PALETTE", "VALUE", "add_band", "add_null_band", "add_profile", "add_slider", "blank",
    "error_bars", "faded",
]  # fmt: skip
