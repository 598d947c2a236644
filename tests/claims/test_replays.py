import pytest

from tests.toy import ROOT
from vdnnsim.claims.replays import stretched
from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.profile import find_profile, read_profile


def test_every_kernel_is_stretched_by_the_factor() -> None:
    server = read_profile(find_profile("p100_x2", ROOT))
    workload = Workload(build_network("vgg_d_13conv"), batch_size=8)
    before, after = (ServerCosts(each).table(workload).kernels for each in (server, stretched(server, 3.0)))

    assert before.keys() == after.keys()
    for key, kernels in before.items():
        slower = {kernel.algorithm: kernel for kernel in after[key]}
        for kernel in kernels:
            assert slower[kernel.algorithm].seconds == pytest.approx(3 * kernel.seconds)
            assert slower[kernel.algorithm].workspace_bytes == kernel.workspace_bytes
