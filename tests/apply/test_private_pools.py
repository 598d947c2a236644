"""Private pools of PyTorch's allocator, from which planned loops allocate on a GPU."""

import pytest
import torch

from calibration.apply.private_pools import PrivatePools
from vdnnsim.errors import ExecutionRefused


def test_no_private_pool_is_used_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the capture has ended, its blocks are free for later steps beside replays. PyTorch's own may be used."""
    pools = PrivatePools(torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(ExecutionRefused, match="CUDA graph"), pools.using(1):
        pass
    assert pools.use(0) == 0
