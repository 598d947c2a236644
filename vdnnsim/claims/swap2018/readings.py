"""What other readings of Kim et al. (2018) would give."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

from vdnnsim.claims.claim import Claim, read_network
from vdnnsim.claims.readings import ReadingRows
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.swap2018.metrics import METRICS
from vdnnsim.claims.swap2018.runs import ServerRuns, SwapReading
from vdnnsim.claims.swap2018.stated import framework_s_per_byte
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.operations import Aggregation
from vdnnsim.processes import on_all_cores

_OF_TABLE_I = framework_s_per_byte()


def _interval(x: int) -> Mapping[str, Mapping[str, object]]:
    return {"swap": {"interval": x}, "staggered_swap": {"interval": x}}


_INTERVAL = (
    "Every x-th CONV output is swapped everywhere. III-A calls x the number of layers over the number of those that "
    "need to swap, and gives neither. Taken: 3 for speeds on the P100s and 4 for the largest batch there, on "
    "the Titan Xp 1 for VGG and 2 for Inception-v3."
)

READINGS = (
    SwapReading("interval: 1", _INTERVAL, options=_interval(1)),
    SwapReading("interval: 2", "The same.", options=_interval(2)),
    SwapReading("interval: 3", "The same.", options=_interval(3)),
    SwapReading("interval: 4", "The same.", options=_interval(4)),
    SwapReading("interval: 5", "The same.", options=_interval(5)),
    SwapReading(
        "kernel times of DeepBench",
        "The paper's GPUs are slower without swap than the kernels that DeepBench measured, and what they wait for is "
        "not said. Taken: all kernels take longer by the factor that the first row of the table without swap asks for.",
        own_speed=False,
    ),
    SwapReading("kernel times of DeepBench, interval: 4", "The same.", options=_interval(4), own_speed=False),
    SwapReading(
        "algorithms: p",
        "The paper names neither the version of TensorFlow nor that of cuDNN. Taken: what TensorFlow before 1.3 tries "
        "by default, which leaves out Winograd's algorithm that is not fused. This is the fastest of all that cuDNN "
        "has, as later versions try.",
        algorithms={"algorithms": "p"},
    ),
    SwapReading(
        "algorithms: m",
        "The least workspace, as where nothing is left for it.",
        algorithms={"algorithms": "m"},
    ),
    SwapReading(
        "swap: synchronization: none",
        "When streams synchronize under the original is not said. Taken: at each layer that copies, as vDNN does.",
        options={"swap": {"synchronization": "none"}},
    ),
    SwapReading(
        "staggered_swap: swap_in: just_in_time",
        "Swaps are staggered, but no trigger is searched for (III-C): each map comes back one step ahead.",
        options={"staggered_swap": {"swap_in": "just_in_time"}},
    ),
    SwapReading(
        "staggered_swap: swap_in: untriggered",
        "No trigger at all, Fig. 5: maps follow their own offload back, and no memory is freed.",
        options={"staggered_swap": {"swap_in": "untriggered"}},
    ),
    SwapReading(
        "staggered_swap: stagger: false",
        "Triggers are searched for, but all GPUs swap the same layers.",
        options={"staggered_swap": {"stagger": False}},
    ),
    SwapReading(
        "gradients: gpu",
        "Aggregated on one GPU, what IV-B decides against; taken: by the CPU, beside backward, at the bandwidth of its "
        "memory.",
        gradients=Aggregation.GPU,
    ),
    SwapReading("gradients: ring", "Aggregated around a ring, as users have it today.", gradients=Aggregation.RING),
    SwapReading(
        "5 % of GPU memory is kept",
        "A framework keeps memory for itself that no plan sees; how much is assumed here. Taken: nothing.",
        kept_fraction=0.05,
    ),
    SwapReading(
        "memory_model: best_fit",
        "How TensorFlow's allocator places maps, and what gaps cost, is not in the paper. Taken: bytes are added up.",
        memory_model=MemoryModel.BEST_FIT,
    ),
    SwapReading(
        "one port for both switches",
        "IV-B: with four GPUs the bandwidth that each can use is halved. So it would be if both switches shared one "
        "port of the host; taken: each has its own.",
        one_root=True,
    ),
    SwapReading(
        "the framework's time of Table I",
        "By the two rows of VGG in Table I, an iteration takes 0.50 s besides what grows with its images. That time, "
        "in proportion to the bytes of weights, is added to each iteration, and kernels take what DeepBench measured.",
        framework_s_per_byte=_OF_TABLE_I,
        own_speed=False,
    ),
    SwapReading(
        "the framework's time of Table I, interval: 4",
        "The same with every fourth CONV output on all machines.",
        options=_interval(4),
        framework_s_per_byte=_OF_TABLE_I,
        own_speed=False,
    ),
)
"""The alternatives, in the order of the report."""


def compare_readings(
    claims: Sequence[Claim],
    runs: ServerRuns,
    hardware: str,
    readings: Sequence[SwapReading] = READINGS,
    tell: Callable[[str], object] = str,
) -> tuple[ReadingRows[SwapReading], ...]:
    """Check every claim under every reading."""
    # Claims of one network on one machine go together: what a reading does not change of it is replayed once.
    groups: dict[Hashable, list[Claim]] = {}
    for claim in claims:
        groups.setdefault((claim.hardware, read_network(claim.networks[0])[0]), []).append(claim)
    ask = partial(_rows, ServerRuns(runs.machines), hardware, tuple(readings))
    # The last are those on four GPUs, which take longest and so begin first.
    answers = on_all_cores(ask, list(reversed(groups.values())), tell)
    found = {row: rows for of_group in answers for row, rows in of_group.items()}
    return tuple(
        ReadingRows(each, tuple(found[claim.id][number] for claim in claims)) for number, each in enumerate(readings)
    )


def _rows(
    fresh: ServerRuns, hardware: str, readings: Sequence[SwapReading], claims: Sequence[Claim]
) -> dict[str, list[ClaimRow | None]]:
    """Return by claim its row under each reading; None where a policy refuses."""
    under = [fresh.under(reading) for reading in readings]
    return {claim.id: [_row(claim, runs, hardware) for runs in under] for claim in claims}


def _row(claim: Claim, runs: ServerRuns, hardware: str) -> ClaimRow | None:
    try:
        return METRICS.check(claim, runs, hardware)
    except PolicyError:
        return None
