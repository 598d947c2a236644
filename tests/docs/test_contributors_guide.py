import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy import ROOT, TOY_LIMITS, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import known_policies, resolve_policy


@pytest.fixture
def largest_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Policy]:
    """The policy in the Python block of CONTRIBUTING.md, put into a module."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (tmp_path / "from_the_guide.py").write_text(guide.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    yield resolve_policy("largest_maps", known_policies(["from_the_guide"]))
    del sys.modules["from_the_guide"]


@pytest.mark.parametrize(("device_bytes", "offloads"), [(306, 0), (305, 1), (296, 1), (295, 2), (294, 2), (1, 4)])
def test_the_example_of_the_guide_offloads(largest_maps: Policy, device_bytes: int, offloads: int) -> None:
    """Two CONV layers, an FC layer and the loss: input, conv1 and conv2 of 10 B, fc and loss of 2 B; W and dW 264 B.

    Nothing offloaded, backward of fc needs the three maps, dfc and dconv2: 264 + 30 + 2 + 10 = 306 B. Without the input
    296 B. Without conv1 as well it is backward of conv2, for which conv1 is prefetched, with dconv2 and dconv1: 294 B.
    Where nothing helps, all that backward reads is offloaded, the probabilities of the loss among them.
    """
    workload = toy_workload(toy_chain(2))
    limits = replace(TOY_LIMITS, device_bytes=device_bytes)
    plan = largest_maps.plan(toy_setting(workload, toy_costs(workload, {}), limits))
    check_plan(plan)
    for kind in (Offload, Prefetch):
        assert sum(isinstance(operation, kind) for operation in plan.operations) == offloads


def test_the_example_of_the_guide_plans_any_network(largest_maps: Policy) -> None:
    workload = Workload(build_network("googlenet"), 1)
    check_plan(largest_maps.plan(toy_setting(workload, toy_costs(workload, {}))))
