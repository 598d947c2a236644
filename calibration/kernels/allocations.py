"""How much memory PyTorch takes on the CPU while something runs, counted by PyTorch itself."""

from collections.abc import Callable

import torch


def transient_bytes(run: Callable[[], None]) -> int:
    """Return the maximum of the bytes that this thread held at once of what it took from PyTorch while `run` ran.

    PyTorch's allocator on the CPU reports each allocation to its profiler; oneDNN takes what it reorders and its
    scratchpads from the same. The profiler's interface in Python rounds nothing, but it starts a tracer for a whole
    process, which this need not have.
    """
    profiler = torch._C._profiler  # noqa: SLF001 - what torch.autograd.profiler_legacy is made of
    configuration = profiler.ProfilerConfig(
        profiler.ProfilerState.CPU,
        False,  # noqa: FBT003 - shapes of inputs
        True,  # noqa: FBT003 - memory
        False,  # noqa: FBT003 - stacks
        False,  # noqa: FBT003 - FLOPs
        False,  # noqa: FBT003 - modules
        profiler._ExperimentalConfig(),  # noqa: SLF001 - as above
    )
    torch._C._autograd._enable_profiler_legacy(configuration)  # noqa: SLF001 - as above
    try:
        run()
    finally:
        records = torch._C._autograd._disable_profiler_legacy()  # noqa: SLF001 - as above
    held = peak = 0
    for record in (record for thread in records for record in thread):
        if str(record.kind()) == "memory_alloc":
            held += record.cpu_memory_usage()
            peak = max(peak, held)
    return peak
