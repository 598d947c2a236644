"""A machine at another pace: what a paper measured is slower than kernels alone, and copies hide behind all of it."""

from dataclasses import replace

from vdnnsim.hardware.server import Server


def stretched(server: Server, factor: float) -> Server:
    """Return a machine on which every kernel takes `factor` times as long: rates and launches alike."""
    gpu = replace(
        server.gpu,
        flop_per_s={element_type: rate / factor for element_type, rate in server.gpu.flop_per_s.items()},
        dram_bytes_per_s=server.gpu.dram_bytes_per_s / factor,
    )
    overhead_s = server.cost_model["kernel_overhead_s"] * factor
    return replace(server, gpu=gpu, cost_model={**server.cost_model, "kernel_overhead_s": overhead_s})
