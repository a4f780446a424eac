"""How near a number of the embedded model must come to the one that was written down.

With 8 bits the last bit of a sum can tip a rounding, and processors add in different orders. On the kind of processor
on which the numbers were made they come out the same; elsewhere they may differ in the third digit.
"""

from decided import hardware

SAME_PROCESSOR = hardware.has_flag("avx512_vnni")
TOLERANCE = 1e-3 if SAME_PROCESSOR else 1e-2
