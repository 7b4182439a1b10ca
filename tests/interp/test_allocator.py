"""What passes leave behind goes back to the system, where the C library can be told so."""

import platform

from interp.allocator import return_large_blocks


def test_the_thresholds_are_fixed_with_glibc_and_nowhere_else():
    assert return_large_blocks() == (platform.libc_ver()[0] == "glibc")
    assert return_large_blocks.__wrapped__() == return_large_blocks(), "asking again changes nothing"
