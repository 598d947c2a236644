"""What cuDNN's search for the fastest convolutions asks of PyTorch's allocator: `torch.backends.cudnn.benchmark`.

The first time that a convolution of these sizes is computed, forward, for its data gradient or its weight gradient,
PyTorch takes the largest workspace of all kernels that cuDNN names for it, where there is no room for that half of it
and so on, tries each kernel in it, gives it back, and gives back to the GPU all that is free. Only then it takes the
workspace of the fastest. Which that is nobody knows who has no GPU: here it is the first that cuDNN's heuristics name,
as where nobody searches (`vdnnsim.cost.chosen_workspace`). Depthwise convolutions are searched for where maps lie as N,
H, W, C alone; elsewhere PyTorch has kernels of its own.

Source: github.com/pytorch/pytorch, aten/src/ATen/native/cudnn/Conv_v8.cpp (run_single_conv, get_plans_from_find,
generate_and_filter_plans).
"""

from collections.abc import Iterator

from vdnnsim.cost.chosen_workspace import searched_bytes
from vdnnsim.dnn.captured_step import ConvolutionWork
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.step import Role
from vdnnsim.element_type import ElementType
from vdnnsim.memory.requests import Request
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.operations import Allocate, Compute, Release
from vdnnsim.plans.training_plan import TrainingPlan


def searches(plan: TrainingPlan, workload: CapturedWorkload) -> list[Asked]:
    """Return the searches of the plan of what was captured, each at the operation before which it is made."""
    found, known = list[Asked](), set[tuple[ConvolutionWork, ElementType, str]]()
    for position, kernel in enumerate(plan.operations):
        if not isinstance(kernel, Compute):
            continue
        captured = workload.step.operations_of(kernel.layer, kernel.phase)[kernel.operation].captured
        if captured is None or not isinstance(work := captured.work, ConvolutionWork):
            continue
        if work.groups == work.input_channels > 1 and not work.channels_last:
            continue
        element_type = workload.computed_in(captured, ElementType.FLOAT32)
        for what, place in _places(plan, kernel, position, work):
            if (work, element_type, what) not in known:
                known.add((work, element_type, what))
                nbytes = searched_bytes(work, element_type.nbytes)
                found.append(Asked(place, Request(len(plan.buffers) + len(found), nbytes, searches=True)))
    return found


def _places(plan: TrainingPlan, kernel: Compute, position: int, work: ConvolutionWork) -> Iterator[tuple[str, int]]:
    """Yield what a kernel searches for, and before which operation: that which takes its workspace, or itself."""
    own = {each.memory for each in kernel.operands if each.role is Role.WORKSPACE}
    before = plan.operations[position - 1]
    last = position - 1 if isinstance(before, Allocate) and before.buffer in own else position
    gradients = [each for each in ("input", "weight") if each in work.computes]
    if not work.computes or len(gradients) < 2:
        yield "".join(gradients), last
        return
    passing, earlier = plan.operations[last - 1], plan.operations[last - 2]
    is_passing = isinstance(passing, Release) and isinstance(earlier, Allocate) and passing.buffer == earlier.buffer
    yield from zip(gradients, (last - 2 if is_passing else last, last), strict=True)
