"""What is run: workloads, some of them under every policy, the others under the vDNN paper's.

Some of the networks and batch sizes are those that `vdnnsim calibrate` measures by default, some were never measured.
Which of them a row is says the origin of the times of its kernels, not this list.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import PolicyTypes, resolve_policy

_VDNN_PAPER: Final = frozenset({"base", "none", "vdnn_all", "vdnn_conv", "vdnn_dyn"})
"""Names of the policies that the vDNN paper compares."""


@dataclass(frozen=True, slots=True)
class Task:
    """One workload.

    Attributes:
        memory_share: the device memory that a plan may use, as a share of what base(p) asks for, which makes policies
            offload and some of them not fit; None for all that the device has.
        paper_alone: whether it runs only under the policies of the vDNN paper, which takes a fifth of the time.
    """

    network: str
    batch_size: int
    memory_share: float | None = None
    paper_alone: bool = False

    @property
    def workload(self) -> Workload:
        """The workload, in float32.

        Raises:
            InputError: there is no such network.
        """
        return Workload(build_network(self.network), self.batch_size)

    def chosen(self, policies: Iterable[Policy]) -> tuple[Policy, ...]:
        """Return those of some policies under which it runs."""
        return tuple(policy for policy in policies if policy.name in _VDNN_PAPER or not self.paper_alone)

    @property
    def label(self) -> str:
        """As tables show it: `vgg16 (64)`, `vgg16 (64), memory 70 %`."""
        share = "" if self.memory_share is None else f", memory {100 * self.memory_share:.0f} %"
        return f"{self.network} ({self.batch_size}){share}"


CPU_TASKS: Final = (
    Task("tiny_linear", 8, paper_alone=True),
    Task("tiny_forked", 8),
    Task("tiny_residual", 8, paper_alone=True),
    Task("tiny_forked", 8, memory_share=0.75),
    Task("tiny_linear", 12, paper_alone=True),
    Task("cifar10_quick", 8),
)
"""Networks of a few layers, for a machine of two cores; the batch of 12 and the last network were never calibrated.

The memory of a share decides what is offloaded, so there every policy is of interest again.
"""

GPU_TASKS: Final = (
    Task("alexnet", 128, paper_alone=True),
    Task("overfeat", 128, paper_alone=True),
    Task("googlenet", 128),
    Task("vgg16", 64, paper_alone=True),
    Task("vgg16", 128, memory_share=0.5),
    Task("vgg16", 256, paper_alone=True),
    Task("resnet50", 64),
    Task("vgg_d_13conv", 96, paper_alone=True),
    Task("vgg_a_8conv", 80, paper_alone=True),
    Task("resnet50", 48, paper_alone=True),
    Task("alexnet", 200),
)
"""Of the paper's networks and ResNet-50 those that fit ten minutes; the last four were never calibrated."""


def every_policy(types: PolicyTypes) -> tuple[Policy, ...]:
    """Return every policy, one with a choice of algorithms once for each: base(m), base(p), ..., vdnn_dyn, ...

    But for TensorFlow's rule, which mostly comes to what (p) does.
    """
    policies = []
    for name, policy in types.items():
        fields = {field.name: field.type for field in msgspec.structs.fields(policy)}
        choices = fields.get("algorithms")
        values = (
            sorted(each.value for each in choices if each is not Algorithms.TENSORFLOW)
            if isinstance(choices, type) and issubclass(choices, Enum)
            else ()
        )
        policies += [resolve_policy({"policy": name, "algorithms": value}, types) for value in values]
        if not values:
            policies.append(resolve_policy(name, types))
    return tuple(policies)
