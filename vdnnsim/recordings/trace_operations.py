"""The operations of a recorded step: dispatched operators with phase, module and kernels.

An operator calls others until one launches a kernel. An operation is the outermost of them that is not composite: of
`conv2d`, `convolution`, `cudnn_convolution` it is `convolution`. Calls of autograd's nodes are backward, those within
`Optimizer.step` or after all backward are the update, all others forward.

Backward is matched to forward by autograd's sequence number; without one by the name of the node, the last forward of
that name first.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.dnn.layers import Phase
from vdnnsim.recordings.kineto import Activity, Dims, Event
from vdnnsim.recordings.trace_steps import Call, Launch, TracedStep

CONVOLUTION, CONVOLUTION_BACKWARD = "convolution", "convolution_backward"

_ENGINE: Final = "autograd::engine"
"""Prefix of what runs a node and fits its gradients to the inputs, as by the sum for a bias."""
_NODE: Final = re.compile(rf"Backwards?\d*$|AccumulateGrad$|^{_ENGINE}")
_STEM: Final = re.compile(r"Backwards?\d*$")
_UPDATE: Final = "Optimizer.step"
_ZEROES: Final = "Optimizer.zero_grad"
_COMPOSITES: Final = frozenset(
    """
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear matmul einsum bilinear
    batch_norm _batch_norm_impl_index _batch_norm_impl_index_backward instance_norm layer_norm group_norm rms_norm norm
    dropout feature_dropout alpha_dropout softmax log_softmax relu6 selu celu cross_entropy_loss nll_loss nll_loss_nd
    nll_loss2d binary_cross_entropy_with_logits max_pool1d max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_max_pool1d scaled_dot_product_attention _scaled_dot_product_attention_math lstm gru rnn_tanh rnn_relu
    embedding_bag embedding_backward select_backward slice_backward value_selecting_reduction_backward
    pad reshape flatten unflatten contiguous to type_as item zeros zeros_like ones ones_like full full_like
    new_zeros new_ones new_full rand randn stack hstack vstack concat chunk split
    """.split()
)
"""Composite operators. Source: PyTorch, `native_functions.yaml`."""
_ONE_NAME: Final = {
    **dict.fromkeys(
        ("_convolution", "cudnn_convolution", "thnn_conv2d", "_slow_conv2d_forward", "_conv_depthwise2d"), CONVOLUTION
    ),
    **dict.fromkeys(
        ("cudnn_convolution_backward", "thnn_conv2d_backward", "_slow_conv2d_backward"), CONVOLUTION_BACKWARD
    ),
}
"""Names of other versions or backends."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation of a recorded step.

    Attributes:
        name: of the operator, without the namespace aten: `convolution`.
        launches: kernels, copies and fills in order.
        module: around it, the outermost first, joined by `/`; empty if modules were not recorded.
    """

    name: str
    phase: Phase
    call: Call
    launches: tuple[Launch, ...]
    module: str = ""
    forward: int | None = None
    output: tuple[int, ...] | None = None
    zeroes: bool = False

    @property
    def seconds(self) -> float:
        return sum(each.event.seconds for each in self.launches)

    @property
    def dims(self) -> Dims:
        """Sizes of its arguments; empty without shapes."""
        return self.call.event.dims or ()


def operations_of(step: TracedStep) -> tuple[Operation, ...]:
    """Return the operations of a step in the order of their launches, without copies between host and GPU."""
    launches: defaultdict[Call, list[Launch]] = defaultdict(list)
    for launch in step.launches:
        if launch.operator is not None and not is_transfer(launch.event):
            launches[_named(launch.operator.chain)].append(launch)
    threads = autograd_threads(step)
    operations = [_operation(call, found, threads) for call, found in launches.items()]
    last = max((at for at, each in enumerate(operations) if each.phase is Phase.BACKWARD), default=len(operations))
    for at in range(last + 1, len(operations)):
        operations[at] = replace(operations[at], phase=Phase.UPDATE)
    return _matched(operations, step.calls)


def autograd_threads(step: TracedStep) -> frozenset[str]:
    """Return the threads of the host that run backward alone."""
    nodes = {each.event.thread for each in step.calls if is_node(each)}
    others = {each.event.thread for each in step.calls if each.event.activity in (Activity.MODULE, Activity.ANNOTATION)}
    return frozenset(nodes - others - {step.thread})


def is_transfer(event: Event) -> bool:
    """Whether an event is a copy between host and GPU."""
    return event.activity is Activity.COPY and "DtoD" not in event.name and "Device -> Device" not in event.name


def is_node(call: Call) -> bool:
    return bool(_NODE.search(call.event.name))


def short_name(call: Call) -> str:
    """Return the name of an operator without `aten::`, the same for all backends and versions."""
    name = call.event.name.removeprefix("aten::")
    return _ONE_NAME.get(name, name)


def _named(chain: Sequence[Call]) -> Call:
    """Return the operator that names a chain of calls."""
    operators = [each for each in chain if each.event.activity is Activity.OPERATOR and not is_node(each)]
    named = (each for each in operators if each.event.name.removeprefix("aten::") not in _COMPOSITES)
    return next(named, operators[-1] if operators else chain[-1])


def _operation(call: Call, launches: list[Launch], threads: frozenset[str]) -> Operation:
    names = [each.event.name for each in call.around]
    zeroes = any(name.startswith(_ZEROES) for name in names)
    phase = Phase.FORWARD
    if zeroes or any(name.startswith(_UPDATE) for name in names):
        phase = Phase.UPDATE
    elif call.event.thread in threads or any(map(is_node, call.chain)):
        phase = Phase.BACKWARD
    module = "/".join(each.event.name for each in call.around if each.event.activity is Activity.MODULE)
    return Operation(short_name(call), phase, call, tuple(launches), module, zeroes=zeroes)


def _matched(operations: Sequence[Operation], calls: Sequence[Call]) -> tuple[Operation, ...]:
    """Return the operations with the forward of each backward, and the output sizes that follow."""
    matched = list(operations)
    by_sequence, by_stem = _forward_index(operations)
    nodes: dict[Call, int | None] = {}
    for call in calls:
        if not is_node(call):
            continue
        if call.event.sequence is not None:
            nodes[call] = by_sequence.get(call.event.sequence)
        elif not call.event.name.startswith(_ENGINE):
            stem = _letters(_STEM.sub("", call.event.name.rpartition("::")[2]))
            nodes[call] = by_stem[stem].pop() if by_stem.get(stem) else None
    for at, operation in enumerate(operations):
        node = next((each for each in operation.call.chain if each in nodes), None)
        forward = nodes.get(node) if node is not None else None
        if operation.phase is Phase.BACKWARD and forward is not None:
            of = operations[forward]
            sizes = of.dims[0] if of.dims and of.dims[0] else None
            matched[at] = replace(operation, forward=forward, module=operation.module or of.module, output=sizes)
    for node, forward in nodes.items():
        if forward is not None and node.event.dims and node.event.dims[0]:
            matched[forward] = replace(matched[forward], output=node.event.dims[0])
    return tuple(matched)


def _forward_index(operations: Sequence[Operation]) -> tuple[dict[int, int], dict[str, list[int]]]:
    """Return the forward operations by sequence number, and by each possible name of their node.

    An operator without a node has the number of the next node, so the last one with a number made it.
    """
    by_sequence: dict[int, int] = {}
    by_stem: defaultdict[str, list[int]] = defaultdict(list)
    for at, operation in enumerate(operations):
        if operation.phase is not Phase.FORWARD:
            continue
        operators = [each.event for each in operation.call.chain if each.event.activity is Activity.OPERATOR]
        inner = [each.event for launch in operation.launches if launch.operator for each in launch.operator.chain]
        numbers = [each.sequence for each in operators if each.sequence is not None and each.sequence >= 0]
        if numbers:
            by_sequence[numbers[-1]] = at
        # Operators on scalars, as counters of batches, have no gradient.
        if operation.call.event.dims is None or any(operation.dims):
            for stem in {_letters(each.name.removeprefix("aten::")) for each in (*operators, *inner)}:
                by_stem[stem].append(at)
    return by_sequence, by_stem


def _letters(name: str) -> str:
    """Return a name in the form that nodes and operators share: `cudnnconvolution`."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("forward")
