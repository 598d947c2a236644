"""Costs of measured kernels, and predictions from them for kernels that were not measured.

A measured shape costs what its rows say. What was not measured is predicted from rows of its element type, the nearest
group of them that has enough:

    1. the operator with its window and stride, the phase, the algorithm: `conv 3x3 stride 1x1`, forward, `pytorch`
    2. the kind of operator, the phase, the algorithm
    3. the kind of operator and the phase
    4. its class: products (CONV, FC, ATTENTION and RNN but for their update) or what streams through memory
    5. all of them

by a roofline (`vdnnsim.cost.roofline_fit`). Its workspace is predicted from the first three of these groups, by the
quantity that it is proportional to there (`vdnnsim.cost.workspace_fit`), and is 0 without them. If the same layer was
measured at another batch size, both are scaled to that measurement, so that only the growth with the batch is
predicted. Predictions have the origin `fitted`, or `datasheet` if rows of that origin take part.

An unmeasured shape is offered the algorithms that were measured for most shapes like it: the same layer under the
nearest other batch size, else the same window and stride, else the same kind. An algorithm whose measurement failed is
not offered while another is left.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Final

from vdnnsim.cost.kernel_table import KernelRow, KernelShape, torch_operator
from vdnnsim.cost.machine import peak_roofline
from vdnnsim.cost.operator_text import read_operator
from vdnnsim.cost.roofline_fit import Roofline, TimedWork, fit_roofline
from vdnnsim.cost.table import ONLY, RECURRENT, KernelCost, KernelWork, MachineCosts
from vdnnsim.cost.workspace_fit import WorkspaceRule, fit_workspace
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.operator import Arithmetic, SavingRule
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.units import ElementType

_ENOUGH_FOR_TIMES: Final = (8, 4, 4, 1, 1)
_ENOUGH_FOR_WORKSPACES: Final = (4, 1, 1)
"""How many shapes each group must have: a roofline is three numbers, a workspace one."""
_FOLDS: Final = 5


class MeasuredCosts(MachineCosts):
    """The costs of kernels of one element type, measured or predicted; fits what it is asked for, once.

    Args:
        rows: of a kernel table, of any element type; at least one of this type is timed.
        peaks: of the GPU in this element type, for rates that do not follow from the rows.
        element_type: of the shapes to be costed.
    """

    def __init__(self, rows: Iterable[KernelRow], peaks: Roofline, element_type: ElementType) -> None:
        super().__init__()
        of_type = [row for row in rows if row.shape.element_type is element_type]
        self._peaks = peaks
        self._by_shape: dict[KernelShape, list[KernelRow]] = defaultdict(list)
        self._by_layer: dict[Hashable, list[KernelRow]] = defaultdict(list)
        self._groups: dict[Hashable, list[KernelRow]] = defaultdict(list)
        self._named = defaultdict[tuple[str, Phase], list[str]](list)
        for row in of_type:
            self._by_shape[row.shape].append(row)
            if row.algorithm not in (names := self._named[row.shape.kind, row.shape.phase]):
                names.append(row.algorithm)
            if row.seconds is not None:
                self._by_layer[_layer(row.shape)].append(row)
                for group in (*_groups(row.shape, row.algorithm), ("like", _window(row.shape), row.shape.phase)):
                    self._groups[group].append(row)
        assert self._by_layer, f"no row of {element_type.value} has a time"
        self._shortest_s = min(row.seconds for row in of_type if row.seconds is not None)
        self._shapes_in = {group: len({row.shape for row in rows}) for group, rows in self._groups.items()}
        self._stated = {
            group for group, rows in self._groups.items() if any(row.origin is Origin.DATASHEET for row in rows)
        }
        self._rooflines: dict[Hashable, Roofline] = {}
        self._workspaces: dict[Hashable, WorkspaceRule] = {}

    def options(self, shape: KernelShape, flop: int, nbytes: int) -> tuple[KernelCost, ...]:
        """Return the algorithms for a shape with its FLOPs and compulsory DRAM traffic, fastest first."""
        rows = self._by_shape.get(shape, [])
        options = [
            KernelCost(
                row.algorithm, row.seconds, row.workspace_bytes, row.origin, dram_bytes=nbytes, issue_s=row.issue_s
            )
            for row in rows
            if row.seconds is not None
        ]
        if not options:
            # Where none had a steady time, those that the device was asked for.
            names = self._algorithms_like(shape) or self._named[shape.kind, shape.phase] or [ONLY]
            untried = [name for name in names if name not in {row.algorithm for row in rows}]
            options = [self.predict(shape, name, flop, nbytes) for name in untried or names]
        return tuple(sorted(options, key=lambda each: (each.seconds, each.workspace_bytes, each.algorithm)))

    def predict(self, shape: KernelShape, algorithm: str, flop: int, nbytes: int) -> KernelCost:
        """Return what an algorithm is expected to cost for a shape, whether or not it was measured."""
        groups = _groups(shape, algorithm)
        group = self._nearest(groups, _ENOUGH_FOR_TIMES)
        roofline = self._roofline(group)
        rule = self._workspace_rule(self._nearest(groups[:3], _ENOUGH_FOR_WORKSPACES))
        seconds, workspace_bytes = roofline.seconds(flop, nbytes), rule.workspace_bytes(shape)
        sibling = self._sibling(shape, algorithm)
        if sibling is not None and sibling.seconds is not None:
            # The overhead fitted to many shapes is more than that of a launch, which is at most the shortest kernel.
            launch_s, work = min(roofline.overhead_s, self._shortest_s), replace(roofline, overhead_s=0.0)
            growth = work.seconds(flop, nbytes) / work.seconds(sibling.flop, sibling.nbytes)
            seconds = launch_s + growth * (sibling.seconds - launch_s)
            workspace_bytes = rule.scaled_bytes(shape, sibling.shape, sibling.workspace_bytes)
        stated = group in self._stated or (sibling is not None and sibling.origin is Origin.DATASHEET)
        origin = Origin.DATASHEET if stated else Origin.FITTED
        # Of one kind of operator launches hardly depend on sizes; explicit GEMM's are by images.
        like = [sibling] if sibling is not None else self._groups.get(groups[1], [])
        issues = [row.issue_s for row in like if row.issue_s is not None]
        issue_s = median(issues) if issues else None
        return KernelCost(algorithm, seconds, workspace_bytes, origin, dram_bytes=nbytes, issue_s=issue_s)

    def has_measured(self, operator: str) -> bool:
        return ("kind", torch_operator(operator), Phase.FORWARD) in self._groups

    def kernel(self, work: KernelWork) -> KernelCost:
        """Return the predicted cost of a kernel of which only the operator and the work are known.

        A recorded operator of PyTorch (`vdnnsim.cost.kernel_table`) costs the mean of its rows with as many bytes, else
        it is scaled from the nearest row by the work; others are predicted from the rows of their class.
        """
        operator, nbytes = torch_operator(work.name), work.nbytes
        rows = self._groups.get(("kind", operator, Phase.FORWARD), [])
        if equal := [(row.seconds, max(1, row.count)) for row in rows if row.nbytes == nbytes and row.seconds]:
            times, counts = zip(*equal, strict=True)
            seconds = fmean(times, weights=counts)
            return KernelCost(ONLY, seconds, 0, Origin.MEASURED, dram_bytes=nbytes)
        groups = (("kind", operator, Phase.FORWARD), ("class", Arithmetic.PRODUCT in work.flop), "all")
        group = self._nearest(groups, _ENOUGH_FOR_TIMES[-3:])
        roofline = self._roofline(group)
        if work.name.startswith(RECURRENT):
            # Of thousands of short kernels, as in `predict`.
            roofline = replace(roofline, overhead_s=min(roofline.overhead_s, self._shortest_s))
        seconds = roofline.seconds(sum(work.flop.values()), nbytes)
        near = min(rows, key=lambda row: abs(math.log(max(row.nbytes, 1) / max(nbytes, 1))), default=None)
        if near is not None and near.seconds is not None:
            seconds *= near.seconds / roofline.seconds(near.flop, near.nbytes)
        origin = Origin.DATASHEET if group in self._stated else Origin.FITTED
        return KernelCost(ONLY, seconds, 0, origin, dram_bytes=nbytes)

    def _alike(self, workload: Workload, layer: Layer, phase: Phase) -> Hashable:
        return KernelShape.of(workload, layer, phase)

    def _options(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
        shape = KernelShape.of(workload, layer, phase)
        options = self.options(shape, workload.flop(layer, phase), workload.bytes_moved(layer, phase))
        index_bytes = _index_workspace_bytes(workload, layer, phase)
        return tuple(replace(each, workspace_bytes=max(0, each.workspace_bytes - index_bytes)) for each in options)

    def _nearest(self, groups: Sequence[Hashable], enough: Sequence[int]) -> Hashable:
        """Return the first group with enough shapes; None if there is none."""
        pairs = zip(groups, enough, strict=True)
        return next((group for group, least in pairs if self._shapes_in.get(group, 0) >= least), None)

    def _roofline(self, group: Hashable) -> Roofline:
        if group not in self._rooflines:
            work = [TimedWork(row.flop, row.nbytes, row.seconds) for row in self._groups[group] if row.seconds]
            self._rooflines[group] = fit_roofline(work, self._peaks)
        return self._rooflines[group]

    def _workspace_rule(self, group: Hashable) -> WorkspaceRule:
        if group not in self._workspaces:
            measured = [(row.shape, row.workspace_bytes) for row in self._groups.get(group, [])]
            self._workspaces[group] = fit_workspace(measured)
        return self._workspaces[group]

    def _sibling(self, shape: KernelShape, algorithm: str) -> KernelRow | None:
        """Return the row of the same layer and algorithm under the nearest other batch size; None without one."""
        rows = [row for row in self._by_layer.get(_layer(shape), []) if row.algorithm == algorithm]
        return min((row for row in rows if row.shape != shape), key=lambda row: _distance(row, shape), default=None)

    def _algorithms_like(self, shape: KernelShape) -> Sequence[str]:
        """Return the algorithms of measured shapes that are most like a shape; none where nothing is like it."""
        siblings = self._by_layer.get(_layer(shape), [])
        if siblings:
            nearest = min(siblings, key=lambda row: _distance(row, shape)).shape
            return [row.algorithm for row in siblings if row.shape == nearest]
        for like in (("like", _window(shape), shape.phase), ("kind", shape.kind, shape.phase)):
            rows = self._groups.get(like, [])
            if rows:
                counts = Counter(row.algorithm for row in rows)
                most = max(counts.values())
                return [
                    name for name, count in sorted(counts.items()) if 2 * count > self._shapes_in[like] or count == most
                ]
        return ()


def left_out_errors(rows: Sequence[KernelRow], server: Server) -> list[float]:
    """Return the relative error of the time of each kernel, predicted from rows of other layers of its element type.

    A layer is left out in all phases and batch sizes at once; of many layers every fifth together.

    Raises:
        ProfileError: the machine states no peak for an element type.
    """
    errors = []
    for element_type in dict.fromkeys(row.shape.element_type for row in rows):
        peaks = peak_roofline(server, element_type)
        timed = [row for row in rows if row.seconds is not None and row.shape.element_type is element_type]
        layers = dict.fromkeys((row.shape.operator, row.shape.inputs) for row in timed)
        folds = {layer: index % _FOLDS for index, layer in enumerate(layers)}
        for fold in range(min(_FOLDS, len(layers)) if len(layers) > 1 else 0):
            others = [row for row in timed if folds[row.shape.operator, row.shape.inputs] != fold]
            costs = MeasuredCosts(others, peaks, element_type)
            for row in timed:
                if folds[row.shape.operator, row.shape.inputs] == fold and row.seconds:
                    predicted = costs.predict(row.shape, row.algorithm, row.flop, row.nbytes)
                    errors.append(predicted.seconds / row.seconds - 1)
    return errors


def _index_workspace_bytes(workload: Workload, layer: Layer, phase: Phase) -> int:
    """Return how much less workspace a maximum pooling needs that saves its indices than a measured one.

    Measured ones recompute indices in workspace, in backward beside a second Y (`calibration.kernels.pooling`).
    """
    keeps = workload.graph.saving is SavingRule.AUTOGRAD and layer.kind is LayerKind.POOL
    if not keeps or phase is Phase.UPDATE or layer.work.statistics is None:
        return 0
    return workload.statistics_bytes(layer) + workload.map_bytes(layer.output) * phase.is_backward


def _distance(row: KernelRow, shape: KernelShape) -> tuple[float, int]:
    """Return the distance of two batch sizes, by their ratio; of two equal ones the smaller is nearer."""
    sizes = sorted((row.shape.batch_size, shape.batch_size))
    return sizes[1] / sizes[0], row.shape.batch_size


def _layer(shape: KernelShape) -> Hashable:
    return shape.operator, shape.phase, shape.inputs, shape.gradients


def _window(shape: KernelShape) -> str:
    """Return the operator without its channels, padding and bias: `conv 3x3 stride 1x1`."""
    words = shape.operator.partition(" padding ")[0].split()
    return " ".join(words[:1] + words[-3:]) if "stride" in words else shape.kind


def _groups(shape: KernelShape, algorithm: str) -> tuple[Hashable, ...]:
    """Return the groups of a kernel from which it is predicted, the nearest first."""
    operator = read_operator(shape.operator)
    is_product = operator is not None and operator.arithmetic is Arithmetic.PRODUCT
    return (
        ("window", _window(shape), shape.phase, algorithm),
        ("algorithm", shape.kind, shape.phase, algorithm),
        ("kind", shape.kind, shape.phase),
        ("class", is_product),
        "all",
    )
