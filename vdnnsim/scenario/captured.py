"""Captured steps as the workload of a scenario: `workload: {step: my_model.step.json}`.

Captures at two batch sizes allow any batch: `{step: [small.step.json, large.step.json], batch_size: 48}`. Captures on
sequences of several lengths allow to choose one: `{step: [short.step.json, long.step.json], tokens: 4096}`. Of captures
with and without torch.compile those of the scenario's execution are taken. The other keys of a workload are in the
files.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from itertools import compress
from pathlib import Path
from typing import Final

from vdnnsim.cost.machine import lacking_peak
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.ranks import machine_of_rank
from vdnnsim.dnn.captured_check import LARGEST_SIZE
from vdnnsim.dnn.captured_file import read_captured_step
from vdnnsim.dnn.captured_model import CapturedModel, CaptureExecution
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.fusion import compiled
from vdnnsim.engine.host import Execution
from vdnnsim.errors import ProfileError, ScenarioError
from vdnnsim.files.messages import describe, file_name, printable
from vdnnsim.files.value import Entry
from vdnnsim.hardware.profile import Profile
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.interface import Policy
from vdnnsim.scenario.scenario import Scenario

STEP: Final = "step"
SUFFIX: Final = ".step.json"
"""Of the files of captured steps."""
MEMORY_MODEL: Final = MemoryModel.PYTORCH
"""The default of captured models: PyTorch's allocator."""
TOKENS: Final = "tokens"
_BATCH_SIZE: Final = "batch_size"
_SAME: Final = ("model", "mode", "precision", "optimizer", "sample", "device")
"""Fields in which captures of one model agree."""
_MOST_STEPS: Final = 8


def check_fused(execution: Execution, captured: CapturedModel | None, place: Entry) -> None:
    """Refuse, at a key, compiled execution of a built network."""
    if execution is Execution.COMPILED and captured is None:
        raise place.wrong(
            "found 'compiled', but fusion is unknown for the layers of a built network; expected a captured model, "
            f"`workload: {{{STEP}: ...}}`"
        )


def is_captured(entry: Entry) -> bool:
    return isinstance(entry.value, dict) and STEP in entry.value


def read_captured(
    entry: Entry, folder: Path, of_network: Sequence[str], largest_batch: int, execution: Execution
) -> tuple[CapturedModel, CapturedWorkload]:
    """Return the captured model of a workload, and the workload at its batch, by default that of the first step.

    Steps lie in `folder`; their files state the keys `of_network`.

    Raises:
        ScenarioError: a file is wrong, a key repeats what the files state, the steps are not of one model, or the batch
            does not follow from them.
    """
    for name, member in entry.named_members("keys").items():
        if name in of_network and name not in {_BATCH_SIZE, TOKENS}:
            raise member.wrong(f"is given beside '{STEP}', whose file states it; expected one of the two")
    keys = entry.members((STEP,), (_BATCH_SIZE, TOKENS))
    is_list = isinstance(keys[STEP].value, list)
    entries = keys[STEP].items("captured steps") if is_list else (keys[STEP],)
    if len(entries) > _MOST_STEPS:
        raise keys[STEP].wrong(f"found {len(entries)}, expected a list of at most {_MOST_STEPS} captured steps")
    read = [_read(each, folder) for each in entries]
    sources = tuple(source for _, source in read)
    steps = [step for step, _ in read]
    if len({step.compiled for step in steps}) > 1:
        # One of the two ways of execution has captures of its own.
        chosen = [step.compiled == (execution is Execution.COMPILED) for step in steps]
        entries, steps = tuple(compress(entries, chosen)), list(compress(steps, chosen))
    if _BATCH_SIZE in keys and len(entries) == 1:
        raise keys[_BATCH_SIZE].wrong(
            f"is given beside one step, whose file states it; expected {STEP}: [one.step.json, another.step.json] of "
            "two batch sizes"
        )

    def executed(way: str) -> CapturedModel:
        return read_captured(entry, folder, of_network, largest_batch, Execution(way))[0]

    if steps[0].pipeline > 1:
        return _pipeline(keys[STEP], steps, sources, execution, executed)
    _check_same(entries, steps)
    by_tokens: dict[int, list[CapturedStep]] = {}
    for step in steps:
        by_tokens.setdefault(step.sample_elements, []).append(as_executed(step, execution))
    first, *others = (CapturedModel(*each, sources=sources, capture_execution=executed) for each in by_tokens.values())
    batch, tokens = keys.get(_BATCH_SIZE), keys.get(TOKENS)
    place = keys[STEP]
    try:
        model = CapturedModel(*by_tokens[first.tokens], sources=sources, lengths=others, capture_execution=executed)
        if tokens is not None:
            place = tokens
            model = model.at_tokens(tokens.integer(1, LARGEST_SIZE))
        place = batch or place
        return model, model.workload(model.base.part_size if batch is None else batch.integer(1, largest_batch))
    except ScenarioError as failure:
        raise failure if str(failure).startswith(place.file) else place.wrong(str(failure)) from None


def _pipeline(
    place: Entry,
    steps: Sequence[CapturedStep],
    sources: tuple[tuple[str, str], ...],
    execution: Execution,
    executed: CaptureExecution,
) -> tuple[CapturedModel, CapturedWorkload]:
    """Return the model and workload of all ranks of a pipeline."""
    first = steps[0]
    found, wanted = [each.position for each in steps], list(range(first.pipeline))
    if found != wanted or any((each.parallel, each.batch_size) != (first.parallel, first.batch_size) for each in steps):
        raise place.wrong(
            f"found ranks {', '.join(map(str, found))} of {first.parallel}, expected a step of each of {len(wanted)}, "
            "in order, of one layout and batch"
        )
    try:
        ranks = [as_executed(each, execution) for each in steps]
        others = [CapturedModel(each) for each in ranks[1:]]
        model = CapturedModel(ranks[0], sources=sources, capture_execution=executed, others=others)
        return model, model.workload(first.part_size)
    except ScenarioError as failure:
        raise place.wrong(str(failure)) from None


def as_executed(step: CapturedStep, execution: Execution) -> CapturedStep:
    """Return a captured step in a way of execution: one that was captured eagerly has its operators fused by rule.

    Raises:
        ScenarioError: it was captured compiled, and is to run eagerly.
    """
    if step.compiled:
        if execution is Execution.EAGER:
            raise ScenarioError(
                f"{step.model}: execution: found 'eager', expected 'compiled', or 'cuda_graphs': the step was captured "
                "with --compile"
            )
        return step
    return compiled(step) if execution is Execution.COMPILED else step


def captured_model(path: Path, execution: Execution = Execution.EAGER) -> CapturedModel:
    """Return the model of one captured step, or raise ScenarioError where the file is wrong."""
    step, sha256 = read_captured_step(path)
    return CapturedModel(as_executed(step, execution), sources=((file_name(path), sha256),))


def _read(entry: Entry, folder: Path) -> tuple[CapturedStep, tuple[str, str]]:
    if not isinstance(entry.value, str):
        raise entry.expected("the path of a captured step, as `vdnnsim capture` writes it")
    path = folder / entry.text()
    try:
        step, sha256 = read_captured_step(path)
    except ScenarioError as failure:
        raise entry.wrong(str(failure)) from failure
    return step, (file_name(path), sha256)


def _check_same(entries: Sequence[Entry], steps: Sequence[CapturedStep]) -> None:
    sizes = [(step.batch_size, step.sample_elements) for step in steps]
    for at, (entry, step) in enumerate(zip(entries, steps, strict=True)):
        for name in _SAME:
            found, wanted = (_word(getattr(each, name)) for each in (step, steps[0]))
            if found != wanted:
                raise entry.wrong(f"its {name} is {found}, that of the first {wanted}; expected steps of one model")
        if sizes[at] in sizes[:at]:
            raise entry.wrong(f"was captured at a batch of {step.batch_size} as another, expected one of each size")


def _word(value: object) -> str:
    return describe(value.value if isinstance(value, Enum) else value)


def scenario_of(
    model: CapturedModel,
    name: str,
    profile: Profile,
    policies: tuple[Policy, ...],
    execution: Execution = Execution.EAGER,
) -> Scenario:
    """Return the scenario of a model, as executed already, on one GPU of a machine, with PyTorch's allocator.

    Raises:
        ProfileError: the machine cannot time it, or has fewer GPUs than the model has ranks.
    """
    workload, server = (
        model.workload(model.base.part_size),
        machine_of_rank(profile.called, profile.server, model.base),
    )
    if lacking := lacking_peak(profile.called, server, workload.element_type):
        raise ProfileError(lacking)
    # Messages name it.
    ServerCosts(replace(server, name=profile.called)).of_type(workload.element_type)
    return Scenario(
        name=printable(name),
        workload=workload,
        server=server,
        policies=policies,
        memory_model=MEMORY_MODEL,
        pinned_memory=PinnedMemory.ARENA,
        sources=(*model.sources, *profile.sources),
        captured=model,
        execution=execution,
        gpus=1 + len(model.others),
    )
