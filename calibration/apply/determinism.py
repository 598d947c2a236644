"""Which operations of forward a plan may run again: those that then compute the same bits, in the order of one stream.

On a GPU some kernels add up by atomic operations, whose order is another in every run. What forward made by them cannot
be made again, so it stays or moves; a plan never has it recomputed.

The operators are those that PyTorch names in its documentation of `torch.use_deterministic_algorithms`, as of 2.13,
under both headings, where forward dispatches them on CUDA. What it names "when attempting to differentiate" are
operators of backward; where forward differentiates, as for a penalty of gradients, they are found by their names. Of
the others:

- `convolution`: the documentation names all. cuDNN's forward is deterministic, and its backward of data, which
  computes a transposed convolution, is not (cuDNN's guide, "Reproducibility (Determinism)").
- `_cudnn_ctc_loss`: computes the gradient in forward, in no fixed order by some algorithms (the same place).
- `_cudnn_rnn`: has "known non-determinism issues" on some versions of cuDNN and CUDA (`torch.nn.LSTM` and its like).
- `index_reduce`, `kthvalue` and `nanmedian` raise, as those named do, where only deterministic algorithms are allowed.
- `topk`: "the indices of tied elements are not guaranteed to be stable and may vary across different invocations".
- An operator of another library than PyTorch's says nothing of it, and may hold to no order.
"""

from collections.abc import Container
from dataclasses import replace
from typing import Final

from msgspec import structs

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.step import StepOperation

NOT_DETERMINISTIC: Final = frozenset(
    {
        "_cudnn_ctc_loss",
        "_cudnn_rnn",
        "_index_put_impl_",
        "bincount",
        "cumsum",
        "histc",
        "index_add",
        "index_copy",
        "index_put",
        "index_reduce",
        "kthvalue",
        "max_unpool2d",
        "max_unpool3d",
        "median",
        "nanmedian",
        "nll_loss2d_forward",
        "put",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "topk",
    }
)
"""Operators on CUDA by their names without a library, an overload, or the underscore of those in place."""
_ATEN: Final = "aten"


def is_deterministic_on_cuda(operation: StepOperation) -> bool:
    """Whether an operation computes the same bits on a GPU whenever it runs."""
    library, _, rest = operation.name.partition(".")
    name = rest.partition(".")[0]
    if library != "aten" or "backward" in name:
        return False
    if isinstance(operation.work, ConvolutionWork) and operation.work.transposed:
        return False
    return NOT_DETERMINISTIC.isdisjoint({name, name.removesuffix("_")})


def as_repeatable(workload: CapturedWorkload, device_type: str, aside: Container[int]) -> CapturedWorkload:
    """Return a workload whose operations say whether they may run again.

    Args:
        workload: of a step.
        device_type: of torch, on which it runs.
        aside: storages that other streams than the step's touch: what does so runs again in no order with them.
    """
    step = workload.step

    def is_repeatable(operation: StepOperation) -> bool:
        touched = (step.tensors[each.memory].storage for each in operation.operands)
        if any(each in aside for each in touched):
            return False
        return device_type != "cuda" or is_deterministic_on_cuda(operation)

    operations = tuple(structs.replace(each, repeatable=is_repeatable(each)) for each in step.operations)
    return replace(workload, step=structs.replace(step, operations=operations))
