"""Explanations of a plan in words: offloads, slower kernels, stalls, and what fills the memory."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from vdnnsim.dnn.step import BufferKind
from vdnnsim.files.messages import listed
from vdnnsim.planning.buffer_uses import RESIDENT
from vdnnsim.planning.problem import Kernel, Problem
from vdnnsim.planning.timetable import Timetable
from vdnnsim.plans.certificate import Certificate, SlowerKernel
from vdnnsim.plans.operations import Compute, Offload
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_bytes, format_seconds

MOST_REASONS: Final = 3
NEGLIGIBLE: Final = 1e-4
"""Part of an iteration below which a cost is not mentioned."""
OF_NOTE: Final = 0.1
"""Part of the least memory below which optimizer states are not mentioned."""


def explained(
    certificate: Certificate, problem: Problem, timetable: Timetable, states_s: float, *, is_short: bool
) -> Certificate:
    """Return the certificate of a plan in words; states on the host add at least `states_s`.

    The problem has the order without recomputation; what stays of it is said where memory `is_short`.
    """
    names = [each.name for each in problem.buffers.buffers]
    runs = (each.run for each in timetable.movement.problem.kernels)
    return replace(
        certificate,
        offloaded=offloaded(timetable, names),
        on_host=kept_on_host(timetable.movement.problem),
        recomputed=tuple(dict.fromkeys(run.layer.name for run in runs if run.repeat)),
        slower=slower_kernels(timetable),
        levers=levers(timetable, names, states_s),
        stays=what_stays(problem) if is_short else (),
    )


def offloaded(timetable: Timetable, names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    moved: Counter[int] = Counter()
    for chunk in timetable.movement.chunks:
        moved[chunk.wait.buffer] += chunk.nbytes
    return tuple((names[buffer], nbytes) for buffer, nbytes in moved.items())


def slower_kernels(timetable: Timetable) -> tuple[SlowerKernel, ...]:
    """Return the kernels that do not use their fastest algorithm, the largest loss first."""
    found = []
    for kernel, option in zip(timetable.movement.problem.kernels, timetable.options, strict=True):
        fastest = kernel.options[0]
        if option is not fastest:
            found.append(
                SlowerKernel(
                    layer=kernel.run.layer.name,
                    phase=kernel.run.phase.value,
                    chosen=option.kernel.algorithm,
                    fastest=fastest.kernel.algorithm,
                    lost_s=option.seconds - fastest.seconds,
                    saved_bytes=fastest.workspace_bytes - option.workspace_bytes,
                )
            )
    return tuple(sorted(found, key=lambda each: -each.lost_s))


def levers(timetable: Timetable, names: Sequence[str], states_s: float) -> tuple[str, ...]:
    """Return in at most three sentences what costs most: stalls, small workspaces, and states on the host.

    The latter cost at least `states_s`.
    """
    reasons = [*_waits(timetable, names), *_workspaces(timetable), *_held_up(timetable.movement.problem, states_s)]
    negligible_s = NEGLIGIBLE * timetable.seconds
    worth = (each for each in sorted(reasons, key=lambda each: -each[0]) if each[0] > negligible_s)
    return tuple(sentence for _, sentence in islice(worth, MOST_REASONS))


def _workspaces(timetable: Timetable) -> Iterator[tuple[float, str]]:
    """Yield the seconds that kernels lose by smaller workspaces."""
    waiting = {_name(each): each.waiting_bytes for each in timetable.movement.problem.kernels}
    for each in slower_kernels(timetable):
        name = f"{each.phase} of {each.layer}"
        sentence = (
            f"{name} runs {each.chosen} and not {each.fastest}, {format_seconds(each.lost_s)} slower: "
            f"{format_bytes(each.saved_bytes)} of workspace compete with {format_bytes(waiting[name])} that wait"
        )
        yield each.lost_s, sentence


def _waits(timetable: Timetable, names: Sequence[str]) -> Iterator[tuple[float, str]]:
    movement = timetable.movement
    for number, stall_s in enumerate(timetable.stalls):
        if not stall_s:
            continue
        kernel = movement.problem.kernels[number]
        prefetched = [each.wait.buffer for each in movement.chunks if each.wait.next == number]
        if prefetched and number > movement.turn:
            what = f"{names[prefetched[0]]} has come back"
        else:
            gone = sum(each.nbytes for each in movement.chunks[: timetable.released[number]])
            what = f"{format_bytes(gone)} have left"
        yield stall_s, f"{_name(kernel)} waits {format_seconds(stall_s)} until {what}: the link is the limit"


def kept_on_host(problem: Problem) -> tuple[tuple[str, int], ...]:
    """Return the bytes of states and gradients that are prefetched for the update, by kind."""
    moved = Counter[BufferKind]()
    for each in problem.residencies:
        moved[problem.workload.step.storages[each.buffer].kind] += each.nbytes * each.prefetched
    return tuple((kind.words, moved[kind]) for kind in RESIDENT[::-1] if moved[kind])


def _held_up(problem: Problem, lost_s: float) -> Iterator[tuple[float, str]]:
    """Yield the seconds that copies of states and gradients take."""
    moved = " and ".join(f"{format_bytes(nbytes)} of {kind}" for kind, nbytes in kept_on_host(problem))
    yield lost_s, f"{moved} come for the update and leave: at least {format_seconds(lost_s)} of that no kernel hides"


def what_stays(problem: Problem) -> tuple[str, ...]:
    """Return the kernel that limits the memory of any schedule, the one that limits the search, and states held."""
    tightest = max(problem.kernels, key=floor_bytes)
    floor = floor_bytes(tightest)
    storages = [each for number, each in enumerate(problem.workload.step.storages) if number not in problem.on_host]
    resident = sum(each.nbytes for each in storages if each.kind in RESIDENT)
    kinds, names = {each.kind for each in storages}, ("weights", "their gradients", "states")
    whose = listed([name for kind, name in zip(RESIDENT, names, strict=True) if kind in kinds])
    of_them = f", {format_bytes(resident)} of them {whose}" if resident else ""
    least = f"{_name(tightest)} needs {format_bytes(floor)} whatever is away{of_them}: no schedule of this order"
    sentences = [f"{least} fits less memory"]
    sought = max(problem.around(problem.fullest).kernels, key=floor_bytes)
    if floor <= problem.capacity_bytes < (nbytes := floor_bytes(sought)):
        sought_least = f"{_name(sought)} needs {format_bytes(nbytes)} in every plan that is sought"
        sentences.append(f"{sought_least}: what waits within backward stays")
    states = sum(each.nbytes for each in storages if each.kind is BufferKind.OPTIMIZER_STATE)
    if states >= OF_NOTE * floor:
        sentences.append(f"optimizer states take {format_bytes(states)} throughout; offload_optimizer moves them")
    return tuple(sentences)


def floor_bytes(kernel: Kernel) -> int:
    """Return the least memory in which a kernel can run."""
    return kernel.held_bytes + kernel.options[-1].workspace_bytes


def _name(kernel: Kernel) -> str:
    return f"{kernel.run.phase.value} of {kernel.run.layer.name}"


def of_another(plan: TrainingPlan, certificate: Certificate) -> Certificate:
    """Return the certificate of a plan that another policy made, with the bound of one that was searched for."""
    moved: Counter[str] = Counter()
    layers = plan.workload.graph.layers
    for each in plan.operations:
        if isinstance(each, Offload):
            moved[plan.buffers[each.buffer].name] += plan.copied_bytes(each)
    again = (layers[each.layer].name for each in plan.operations if isinstance(each, Compute) and each.repeat)
    return replace(
        certificate,
        offloaded=tuple(moved.items()),
        on_host=(),
        recomputed=tuple(dict.fromkeys(again)),
        slower=(),
        levers=(f"falls back to {plan.policy}: no faster plan was found that fits",),
    )
