"""The clock at which a board keeps to its power limit while its tensor cores compute a product.

At the clock of the stated peaks a kernel draws

    idle + (J/FLOP x FLOPs + J/B x bytes through DRAM) / seconds

A board that would draw more lowers the clock of its multiprocessors until it draws its limit. At a fraction r of the
clock arithmetic takes 1 / r of its time and a FLOP r of its energy, for the voltage falls as well; DRAM keeps its rate.
The energy of a FLOP is that of the type with the highest peak; in another it is as many times more as the peak is
lower, so that at full rate all draw the same.

The clock is that of each kernel, for boards follow their power fast: an H100 of 350 W is held back within the 10 ms
that 36 products of 4096 x 4096 x 4096 take (https://github.com/zzc0721/torch-performance-test-data/issues/95), and
the regions of a training step that multiply matrices flatten at the limit, the others do not
(https://factryze.ai/scale-atlas/power/power-capping).

Known limitations: the energy falls in proportion to the clock, where boards under two limits show powers of it from 0.3
to 2, and none at the lowest voltage. A kernel alone, after a pause, is faster, and so is one whose numbers are zeros.
Heat, which lowers clocks as well, is left out. CUDA cores at their peak draw less, and memory less than any limit.
"""

from math import sqrt

from vdnnsim.hardware.server import Power


def clock_within_limit(
    power: Power, flop_joules: float, dram_bytes: float, arithmetic_s: float, other_s: float = 0.0
) -> float:
    """Return the fraction of the clock, at most 1, at which a kernel draws no more than the limit of a board.

    Args:
        power: of the board, whose limit is above its idle power.
        flop_joules: of the arithmetic of the kernel at the full clock.
        dram_bytes: that it moves.
        arithmetic_s: seconds of its arithmetic at the full clock.
        other_s: its seconds beside these, which do not depend on the clock.
    """
    dram_joules = dram_bytes * power.joules_per_dram_byte
    allowed_watts = power.limit_watts - power.idle_watts
    if not flop_joules or flop_joules + dram_joules <= allowed_watts * (arithmetic_s + other_s):
        return 1.0
    # flop_joules r + dram_joules = allowed_watts (arithmetic_s / r + other_s), solved for r.
    half = (dram_joules - allowed_watts * other_s) / 2
    return (sqrt(half * half + flop_joules * allowed_watts * arithmetic_s) - half) / flop_joules
