import pytest

from tests.machines import shipped_server
from vdnnsim.claims.replays import slower_machine
from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload


def test_every_kernel_takes_the_factor_longer() -> None:
    server = shipped_server("p100_x2")
    workload = Workload(build_network("vgg_d_13conv"), batch_size=8)
    before, after = (ServerCosts(each).table(workload).kernels for each in (server, slower_machine(server, 3.0)))

    assert before.keys() == after.keys()
    for key, kernels in before.items():
        slower = {kernel.algorithm: kernel for kernel in after[key]}
        for kernel in kernels:
            assert slower[kernel.algorithm].seconds == pytest.approx(3 * kernel.seconds)
            assert slower[kernel.algorithm].workspace_bytes == kernel.workspace_bytes
