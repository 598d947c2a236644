import sys
from pathlib import Path

import pytest

from tests.toy import ROOT, toy_costs, toy_setting
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.check import check_plan
from vdnnsim.plan.operations import Offload
from vdnnsim.policies.registry import known_policies, resolve_policy


def test_the_example_in_the_guide_for_contributors_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python block of CONTRIBUTING.md, put into a module: AlexNet has 8 maps to offload, and it offloads 2."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (tmp_path / "from_the_guide.py").write_text(guide.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    policy = resolve_policy({"policy": "first_maps", "count": 2}, known_policies(["from_the_guide"]))
    workload = Workload(build_network("alexnet"), 1)
    plan = policy.plan(toy_setting(workload, toy_costs(workload, {})))

    check_plan(plan)
    assert sum(isinstance(operation, Offload) for operation in plan.operations) == 2
    del sys.modules["from_the_guide"]
