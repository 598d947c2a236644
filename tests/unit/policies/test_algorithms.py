"""Which kernels each rule takes."""

from tests.toy import toy_chain, toy_costs, toy_workload
from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.units import GIB


def chosen(rule: Algorithms, *options: KernelCost) -> str:
    """The algorithm for forward of the first layer, of some that are on offer."""
    workload = toy_workload(toy_chain(1))
    costs = CostTable({**toy_costs(workload, {}).kernels, (0, Phase.FORWARD): options})
    return choose_kernels(workload, costs, rule)[0, Phase.FORWARD].algorithm


def kernel(algorithm: str, seconds: float, workspace_bytes: int) -> KernelCost:
    return KernelCost(algorithm, seconds, workspace_bytes, Origin.ASSUMED)


def test_tensorflow_excludes_non_fused_algorithms_and_workspaces_above_4_gib() -> None:
    """Of 1 s not fused, 2 s with a byte too much, 3 s with 4 GiB and 4 s with nothing, it takes that of 3 s."""
    options = (
        kernel("winograd_nonfused", 1.0, GIB),
        kernel("fft", 2.0, 4 * GIB + 1),
        kernel("winograd", 3.0, 4 * GIB),
        kernel("implicit_gemm", 4.0, 0),
    )
    assert chosen(Algorithms.TENSORFLOW, *options) == "winograd"
    assert chosen(Algorithms.PERFORMANCE_OPTIMAL, *options) == "winograd_nonfused"
    assert chosen(Algorithms.MEMORY_OPTIMAL, *options) == "implicit_gemm"
    # Where tensorflow finds none it takes the least workspace.
    large = kernel("fft", 1.0, 6 * GIB), kernel("fft_tiling", 2.0, 5 * GIB)
    assert chosen(Algorithms.TENSORFLOW, *large) == "fft_tiling"
