"""What a run needs of the three memories that it can overflow, and what there is of them."""

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.memory.choices import is_of_pytorch
from vdnnsim.report.findings import subject
from vdnnsim.units import format_bytes


def budgets(result: ScenarioResult) -> str:
    """Return in one line, of the policy that pictures show, memory of the device, of the host, and what is pinned."""
    row = subject(result)
    of_each = ", ".join(f"{what} {format_bytes(need)} of {format_bytes(there)}" for what, need, there in needs(result))
    searched = ", the most while cuDNN searches for convolutions in the first iteration" * row.trace.peaks_in_search
    return f"Memory that {row.policy} needs{' for each GPU' * (result.gpus > 1)}: {of_each}{searched}."


def needs(result: ScenarioResult) -> tuple[tuple[str, int, int], ...]:
    """Return of each memory its name, what the policy that pictures show needs of it, and what there is.

    Of several GPUs it is that of one, and its part of the host.
    """
    row, server = subject(result), result.server
    host, pinned = server.host, row.trace.host_bytes
    process = host.process_bytes if is_of_pytorch(result.memory_model) else 0
    return (
        ("device", row.held_bytes(server.gpu), server.gpu.memory_bytes),
        ("host", process + pinned, host.memory_bytes // result.gpus),
        ("pinned", pinned, (host.pinnable_bytes or host.memory_bytes) // result.gpus),
    )
