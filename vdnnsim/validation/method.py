"""Tasks, policies and tolerances of a validation: one method for a CPU, one for a GPU."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import msgspec

from vdnnsim.cost.table import AdjustedCosts, CostModel
from vdnnsim.cost.transfer import copy_s
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.server import Link, Server
from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import PolicyTypes, resolve_policy
from vdnnsim.units import format_seconds

_VDNN_PAPER: Final = frozenset({"base", "none", "vdnn_all", "vdnn_conv", "vdnn_dyn"})


@dataclass(frozen=True, slots=True)
class Task:
    """One workload.

    Attributes:
        memory_share: device memory that a plan may use, as a share of the peak of base(p); None for all of it.
        paper_alone: whether it runs only under the policies of the vDNN paper, in a fifth of the time.
    """

    network: str
    batch_size: int
    memory_share: float | None = None
    paper_alone: bool = False

    @property
    def workload(self) -> Workload:
        return Workload(build_network(self.network), self.batch_size)

    def chosen(self, policies: Iterable[Policy]) -> tuple[Policy, ...]:
        return tuple(policy for policy in policies if policy.name in _VDNN_PAPER or not self.paper_alone)

    @property
    def label(self) -> str:
        """Label in tables: `vgg16 (64)`, `vgg16 (64), memory 70 %`."""
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
"""Small networks for two cores; the batch of 12 and the last network were never calibrated."""

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
"""Networks of the paper and ResNet-50, in ten minutes; the last four were never calibrated."""


def every_policy(types: PolicyTypes) -> tuple[Policy, ...]:
    """Return every policy with each choice of algorithms, but for TensorFlow's, which is mostly that of (p)."""
    policies = []
    for name, policy in types.items():
        choices = {field.name: field.type for field in msgspec.structs.fields(policy)}.get("algorithms")
        if isinstance(choices, type) and issubclass(choices, Enum):
            values = sorted(each.value for each in choices if each is not Algorithms.TENSORFLOW)
            policies += [resolve_policy({"policy": name, "algorithms": value}, types) for value in values]
        else:
            policies.append(resolve_policy(name, types))
    return tuple(policies)


@dataclass(frozen=True, slots=True)
class Pacing:
    """Durations given to kernels and copies, long enough for the real work even on a busy machine.

    Attributes:
        kernel_factor, least_kernel_s: a kernel takes the factor times its calibrated time, and at least so much.
        copy_factor, copy_latency_s: a copy takes the latency, and the factor times the calibrated time of its bytes.
        stretches: multiples of all durations in the first run, and in those after a miss.
    """

    kernel_factor: float
    least_kernel_s: float
    copy_factor: float
    copy_latency_s: float
    stretches: tuple[float, ...]

    def times(self, stretch: float) -> "Pacing":
        durations = ("kernel_factor", "least_kernel_s", "copy_factor", "copy_latency_s")
        return replace(self, **{name: getattr(self, name) * stretch for name in durations})

    def costs(self, model: CostModel) -> CostModel:
        """Return stretched costs, which rank algorithms as the calibrated ones do, so that plans are the same."""
        return AdjustedCosts(
            model,
            lambda _workload, _layer, _phase, options: tuple(
                each.retimed(lambda s: max(self.kernel_factor * s, self.least_kernel_s)) for each in options
            ),
        )

    def server(self, server: Server) -> Server:
        """Return the machine with the stretched link, without contention."""
        link = Link(
            name=f"{server.link.name}, paced",
            h2d_bytes_per_s=server.link.h2d_bytes_per_s / self.copy_factor,
            d2h_bytes_per_s=server.link.d2h_bytes_per_s / self.copy_factor,
            latency_s=self.copy_latency_s,
        )
        return replace(server, link=link)

    def describe(self) -> str:
        return (
            f"a kernel takes {self.kernel_factor:g} times its calibrated time and at least "
            f"{format_seconds(self.least_kernel_s)}, a copy {format_seconds(self.copy_latency_s)} and "
            f"{self.copy_factor:g} times what its bytes take at the calibrated rate"
        )


def given_durations(plan: TrainingPlan, cost_model: CostModel, link: Link) -> Mapping[int, float]:
    """Return the seconds of each kernel and copy by position in the plan, as the engine replays them."""
    costs = cost_model.table(plan.workload)
    durations_s: dict[int, float] = {}
    for position, operation in enumerate(plan.operations):
        if isinstance(operation, Compute):
            cost = costs.find(operation.layer, operation.phase, operation.algorithm, operation.operation)
            durations_s[position] = cost.seconds + operation.barrier_s
        elif isinstance(operation, Offload | Prefetch):
            direction = Direction.D2H if isinstance(operation, Offload) else Direction.H2D
            durations_s[position] = copy_s(link, direction, plan.copied_bytes(operation))
    return durations_s


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed differences, as shares of the measured value.

    Attributes:
        calibrated, never_calibrated: of the iteration time, by class of rows.
        every_row: whether they hold for every row, or for the mean of a class.
        memory: of the peak of requested bytes, in every row.
    """

    calibrated: float
    never_calibrated: float
    every_row: bool
    memory: float
    clock_s: float


@dataclass(frozen=True, slots=True)
class Method:
    """A method of measurement.

    Attributes:
        pacing: of a device whose durations are given; None for a device at its own speed.
        free_runs, free_s: least number of runs at the device's own speed after a warm-up, and their least time, but for
            15 runs at most; the median counts, and with given durations is only reported.
    """

    tasks: tuple[Task, ...]
    pacing: Pacing | None
    free_runs: int
    free_s: float
    caching_allocator: bool
    tolerance: Tolerance


PACED_CPU: Final = Method(
    tasks=CPU_TASKS,
    pacing=Pacing(
        kernel_factor=3.0,
        least_kernel_s=8e-3,
        copy_factor=30.0,
        copy_latency_s=10e-3,
        stretches=(1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0),
    ),
    free_runs=1,
    free_s=0.0,
    caching_allocator=False,
    tolerance=Tolerance(calibrated=0.05, never_calibrated=0.05, every_row=True, memory=0.0, clock_s=0.0),
)
"""With given durations; every row must meet them, and memory to the byte."""
FREE_GPU: Final = Method(
    tasks=GPU_TASKS,
    pacing=None,
    free_runs=3,
    free_s=0.25,
    caching_allocator=True,
    # CUDA events have a resolution of 0.5 us, and each time is the difference of two.
    tolerance=Tolerance(calibrated=0.05, never_calibrated=0.10, every_row=False, memory=0.005, clock_s=2e-6),
)
"""At the GPU's own speed, against calibrated or predicted times."""
