"""`tensorflow`: TensorFlow 1 as the papers measure it: liveness, best fit with coalescing, and nothing offloaded.

The Layrub paper says of it that memory is allocated for the layers that run, activations or gradients as they are
wanted, by a greedy best fit with coalescing, with no other optimization (Table 2 and 5.3.1). Tensors are counted
references: the last reader of a tensor gives it back. Sources: Abadi et al., TensorFlow, OSDI 2016; and TensorFlow 1,
`core/kernels/conv_ops.cc`.

How it differs from `none`:

- What a layer keeps for its backward beside maps, such as batch statistics and dropout masks, is a tensor like any
  other and lives from its forward to its backward, where `none` holds it throughout.
- A convolution takes the fastest algorithm whose workspace the allocator can give when it is first run, 4 GiB at most
  (`TF_CUDNN_WORKSPACE_LIMIT_IN_MB`). So a network for which there is no workspace still trains, slower.

What is read into it:

- Activations are in place: since version 1.0 an element-wise operation takes over the buffer of an input that nobody
  else refers to (`forward_input_or_allocate_output`), and the gradient of a rectifier needs the output alone.
- The allocator is the memory model of the scenario, as for every policy; TensorFlow's own is `memory_model: tensorflow`
  (`vdnnsim.memory.bfc`).
- Operations run in the order of layers, which one stream makes of the graph. W gradients are held throughout, the
  reading that all policies share. Where branches meet, gradients are added up as they come.
"""

from typing import ClassVar

from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import TENSORFLOW_WORKSPACE_BYTES, downgraded_until_it_fits, kernels_within
from vdnnsim.policies.interface import DecidedBy, Policy, Setting


class TensorFlow(Policy, frozen=True, kw_only=True):
    """Free every tensor after its last reader, and take the fastest algorithm for which there is room."""

    name: ClassVar[str] = "tensorflow"
    summary: ClassVar[str] = "liveness and the fastest algorithms for which there is room (TensorFlow 1)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the algorithms that autotuning would find, as long as a workspace is what does not fit."""
        workload = setting.workload
        steps = iteration(workload)
        return downgraded_until_it_fits(
            setting,
            kernels_within(workload, setting.costs, TENSORFLOW_WORKSPACE_BYTES),
            lambda kernels: lower(steps, workload, kernels, label=self.label, algorithms="autotuned"),
        )
