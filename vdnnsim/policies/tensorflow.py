"""`tensorflow`: TensorFlow 1 as the papers measure it: liveness, best fit with coalescing, and nothing offloaded.

By the Layrub paper memory is allocated for the layers that run, by a greedy best fit with coalescing, with no other
optimization (Table 2 and 5.3.1). Tensors are reference-counted: the last reader frees a tensor. Sources: Abadi et al.,
TensorFlow, OSDI 2016; and TensorFlow 1, `core/kernels/conv_ops.cc`.

Differences from `none`:

- Data that a layer keeps for its backward, such as batch statistics and dropout masks, are tensors that live from its
  forward to its backward, where `none` holds them throughout.
- A convolution takes the fastest algorithm whose workspace can be allocated when it is first run, 4 GiB at most
  (`TF_CUDNN_WORKSPACE_LIMIT_IN_MB`). So a network without room for workspaces trains, slower.

Assumptions:

- Activations are in place: since version 1.0 an element-wise operation reuses the buffer of an input without other
  references (`forward_input_or_allocate_output`), and the gradient of a rectifier needs the output alone.
- TensorFlow's allocator is `memory_model: tensorflow` (`vdnnsim.memory.bfc`).
- Operations run in the order of layers, on one stream. dW are held throughout, as under all policies. Where branches
  meet, gradients are accumulated.
"""

from typing import ClassVar

from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import TENSORFLOW_WORKSPACE_BYTES, downgraded_until_it_fits, kernels_within
from vdnnsim.policies.interface import DecidedBy, Policy, Setting


class TensorFlow(Policy, frozen=True, kw_only=True):
    """Free every tensor after its last reader, and take the fastest algorithm that fits."""

    name: ClassVar[str] = "tensorflow"
    summary: ClassVar[str] = "liveness and the fastest algorithms for which there is room (TensorFlow 1)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = setting.workload
        steps = iteration(workload)
        return downgraded_until_it_fits(
            setting,
            kernels_within(workload, setting.costs, TENSORFLOW_WORKSPACE_BYTES),
            lambda kernels: lower(steps, workload, kernels, label=self.label, algorithms="autotuned"),
        )
