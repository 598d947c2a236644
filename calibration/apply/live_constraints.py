"""Constraints on plans of live loops: the storages that autograd alone holds, and operations that repeat bit by bit.

On a GPU some kernels use atomic additions, in another order each run, so that their results are kept or offloaded. The
operators are those of `torch.use_deterministic_algorithms`, as documented in 2.13 under both headings, where forward
dispatches them on CUDA. Those "when attempting to differentiate" are operators of backward; where forward
differentiates, as for a gradient penalty, they are found by name. Of the others:

- `convolution`: the documentation names all. cuDNN's forward is deterministic, and its backward of data, which
  computes a transposed convolution, is not (cuDNN's guide, "Reproducibility (Determinism)").
- `_cudnn_ctc_loss`: computes the gradient in forward, in no fixed order by some algorithms (the same place).
- `_cudnn_rnn`: has "known non-determinism issues" on some versions of cuDNN and CUDA (`torch.nn.LSTM` and its like).
- `cumprod`, `logcumsumexp`: along the only dimension by the scan of CUB, as `cumsum`, whose floating-point results may
  vary from run to run (https://github.com/NVIDIA/cub/issues/454).
- `index_reduce`, `kthvalue` and `nanmedian` raise, as those named do, where only deterministic algorithms are allowed.
- `topk`: "the indices of tied elements are not guaranteed to be stable and may vary across different invocations".
- Operators of other libraries than PyTorch are taken for nondeterministic.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from calibration.capture.tape import Tape
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, StepOperation, Storage
from vdnnsim.plans.buffers import states_of_update

NOT_DETERMINISTIC: Final = frozenset(
    "_cudnn_ctc_loss _cudnn_rnn _index_put_impl_ bincount cumprod cumsum histc index_add index_copy index_put "
    "index_reduce kthvalue logcumsumexp max_unpool2d max_unpool3d median nanmedian nll_loss2d_forward put scatter "
    "scatter_add scatter_reduce topk".split()
)
"""Names of operators without library, overload, or trailing underscore."""


def is_deterministic_on_cuda(operation: StepOperation) -> bool:
    """Whether an operation always computes the same bits on a GPU."""
    library, _, rest = operation.name.partition(".")
    name = rest.partition(".")[0]
    if library != "aten" or "backward" in name:
        return False
    if isinstance(operation.work, ConvolutionWork) and operation.work.transposed:
        return False
    return NOT_DETERMINISTIC.isdisjoint({name, name.removesuffix("_")})


def as_repeatable(workload: CapturedWorkload, device_type: str, aside: Container[int]) -> CapturedWorkload:
    """Return a workload whose operations have `repeatable` for a device.

    Not repeatable are operations on storages `aside`, which other streams use, and those that read a buffer of the
    model that forward writes later, as a counter of a module that runs twice.
    """
    step = workload.step
    written = {
        step.tensors[operand.memory].storage: position
        for position, operation in enumerate(step.operations)
        if operation.phase is Phase.FORWARD
        for operand in operation.operands
        if operand.access.writes and step.storages[step.tensors[operand.memory].storage].given
    }

    def is_repeatable(position: int, operation: StepOperation) -> bool:
        touched = [(step.tensors[each.memory].storage, each.access) for each in operation.operands]
        if any(each in aside or (not access.writes and written.get(each, 0) > position) for each, access in touched):
            return False
        return device_type != "cuda" or is_deterministic_on_cuda(operation)

    return _with_operations(
        workload, (structs.replace(each, repeatable=is_repeatable(at, each)) for at, each in enumerate(step.operations))
    )


def movable_storages(workload: CapturedWorkload, tape: Tape) -> dict[int, range]:
    """Return by storage the first and the last operation between which autograd alone holds it.

    Without storages of other streams, for which it is unknown when they are done.
    """
    step = workload.step
    storages, operations = step.storages, step.operations
    unpacked = {tape.saves[each.save].storage: each.issued for each in reversed(tape.unpacks)}
    spans: dict[int, range] = {}
    for save in tape.saves:
        number = save.storage
        if storages[number].given or number not in unpacked or number not in tape.let_go or number in tape.aside:
            continue
        # Autograd saves an input before its operation, a result after it.
        following = operations[save.issued : save.issued + 1]
        is_read = any(step.tensors[each.memory].storage == number for one in following for each in one.operands)
        last = save.issued if is_read else save.issued - 1
        start = max(tape.let_go[number], last, spans[number].start if number in spans else -1)
        spans[number] = range(start, unpacked[number])
    return {number: span for number, span in spans.items() if len(span) > 1 and span.start < len(operations)}


def freeing_inputs(step: CapturedStep, tape: Tape) -> CapturedStep:
    """Return a step whose inputs are freed when forward of the model returns, but for those that autograd keeps."""
    saved = {each.storage for each in tape.saves}
    last = {step.tensors[each.memory].storage: at for at, one in enumerate(step.operations) for each in one.operands}

    def freed(number: int, each: Storage) -> Storage:
        is_input = each.given and each.kind is BufferKind.FEATURE_MAP and not each.constant
        if not is_input or number in saved:
            return each
        return structs.replace(each, freed_after=max(last.get(number, 0), tape.forwards[-1].stop - 1))

    return structs.replace(step, storages=tuple(freed(number, each) for number, each in enumerate(step.storages)))


def pool_boundaries(workload: CapturedWorkload, tape: Tape) -> frozenset[int]:
    """Return the operations before which a loop can change the pool of PyTorch's allocator.

    These are all of the model's forward, those of the loss behind a save, and those of backward behind an unpack or the
    gradient of a saved tensor.
    """
    operations = workload.step.operations
    saved = (each.issued for each in tape.saves if each.issued < len(operations))
    of_loss = (each for each in saved if operations[each].phase is Phase.FORWARD)
    return frozenset((*tape.of_model, *of_loss, *(each.issued for each in (*tape.unpacks, *tape.arrivals))))


def with_user_references(workload: CapturedWorkload, free: Mapping[int, range]) -> CapturedWorkload:
    """Return a workload whose operations hold all storages that the program holds, and autograd from its unpack on.

    Optimizer states can be streamed, so they are not held. `free` is as of `movable_storages`.
    """
    step = workload.step
    held = defaultdict[int, list[int]](list)
    streamed = states_of_update(step)
    for number, storage in enumerate(step.storages):
        begin = 0 if storage.given else step.first_use.get(number)
        if begin is None or number in streamed:
            continue
        if storage.given and storage.kind is BufferKind.WEIGHTS:
            # Held by every plan.
            continue
        is_of_forward = step.operations[begin].phase is Phase.FORWARD
        if not is_of_forward and storage.kind is not BufferKind.WEIGHT_GRADIENT:
            continue
        last = len(step.operations) - 1 if storage.freed_after is None else storage.freed_after
        span = free.get(number, range(last + 1, last + 1))
        for position in (*range(begin, min(span.start, last) + 1), *range(span.stop, last + 1)):
            held[position].append(number)
    return _with_operations(
        workload,
        (
            structs.replace(each, holds=tuple(dict.fromkeys((*each.holds, *held[position]))))
            for position, each in enumerate(step.operations)
        ),
    )


def _with_operations(workload: CapturedWorkload, operations: Iterable[StepOperation]) -> CapturedWorkload:
    return replace(workload, step=structs.replace(workload.step, operations=tuple(operations)))
