"""A machine on which every kernel takes longer, for papers whose times hold more than kernels."""

from dataclasses import replace

from vdnnsim.hardware.server import Server


def slower_machine(server: Server, factor: float) -> Server:
    """Return a machine on which every kernel takes `factor` times as long, by rates and launches.

    What the papers measured beside kernels overlaps with copies as kernels do.
    """
    gpu = replace(
        server.gpu,
        flop_per_s={element_type: rate / factor for element_type, rate in server.gpu.flop_per_s.items()},
        dram_bytes_per_s=server.gpu.dram_bytes_per_s / factor,
    )
    overhead_s = server.cost_model["kernel_overhead_s"] * factor
    return replace(server, gpu=gpu, cost_model={**server.cost_model, "kernel_overhead_s": overhead_s})
