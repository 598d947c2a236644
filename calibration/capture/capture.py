"""Captures one iteration of a program as a step."""

import gc
import logging
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext

import msgspec
import torch
from torch import nn

from calibration.capture.as_cuda import as_cuda
from calibration.capture.called_models import noting_calls
from calibration.capture.checkpointing import running_within_hooks
from calibration.capture.chunked_loss import NOTE
from calibration.capture.cuda.rules import Gpu
from calibration.capture.failures import about_split, failure_outside, keep_user_frames, refuse_float8
from calibration.capture.fake_tensors import FakeTensors, initializing, replaced
from calibration.capture.initial_storages import add_given
from calibration.capture.iteration import Iteration
from calibration.capture.optimizers import make_states
from calibration.capture.preparation import adapted, prepare, replace_tensors
from calibration.capture.program import CaptureDevice, Program, precision_of
from calibration.capture.record import Record
from calibration.capture.recorder import Recorder
from calibration.capture.roles import assign_kinds, operands_of
from calibration.capture.running_module import ModuleTracker
from calibration.capture.schemas import OperatorMode
from calibration.capture.storages import StorageTable, size_of
from calibration.capture.tape import Tape, TapeRecorder, freed_by_program
from calibration.capture.wrapped import refuse_spread, run_eagerly
from vdnnsim.dnn.captured_step import VERSION, CapturedStep
from vdnnsim.dnn.kernel_work import NO_SECTORS
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import OFFLOADED
from vdnnsim.dnn.step import StepOperation
from vdnnsim.errors import CaptureError, VdnnsimError


def capture(program: Program, device: CaptureDevice) -> CapturedStep:
    """Return one iteration of a program; see `capture_batches`."""
    (step,) = capture_batches((program,), device)
    return step


def capture_with_tape(program: Program, device: CaptureDevice) -> tuple[CapturedStep, Tape]:
    """Return one iteration of a program, and its saves and unpacks by autograd.

    A warm-up makes states and caches. In it autograd keeps copies, so that dropping a saved storage frees it.

    Raises:
        CaptureError: the program cannot be captured; the message has the reason and the user's line.
    """
    ((step, tape),) = _captured((program,), device, taped=True)
    assert tape is not None, "it was asked for"
    return step, tape


def capture_batches(programs: Iterable[Program], device: CaptureDevice) -> Generator[CapturedStep]:
    """Yield one iteration of each of several programs that differ in what is around the same model alone.

    The model is made once, by the first; each other program is taken when its iteration is asked for.

    Raises:
        CaptureError: one of them cannot be captured.
    """
    with closing(_captured(programs, device, taped=False)) as found:
        yield from (step for step, _ in found)


def _captured(
    programs: Iterable[Program], device: CaptureDevice, *, taped: bool
) -> Generator[tuple[CapturedStep, Tape | None]]:
    others = iter(programs)
    program = next(others)
    fakes = None if device.real else FakeTensors()
    as_gpu = as_cuda(device.compute_capability) if fakes is not None and device.compute_capability else nullcontext()
    compiled = replaced(OperatorMode, "is_compiled", device.compiled)
    # It logs failures, which are raised as well, or caught by the model.
    quiet = replaced(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", value=True)
    rank, recomputing = _as_rank(program, device), running_within_hooks()
    within = nullcontext() if fakes is None else fakes.running()
    with compiled, quiet, rank, recomputing, within, as_gpu as gpu, _blamed(program) as blame:
        with ExitStack() as making:
            if fakes is not None:
                making.enter_context(initializing())
                making.enter_context(warnings.catch_warnings())
                # By modules that copy others, as a transformer's encoder.
                warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
            model = program.make_model()
        if not program.is_wrapped:
            refuse_spread(model)
            if fakes is not None:
                replace_tensors(model, fakes.fake, buffers=False)
        iteration = prepare(program, model, device.device_type, foreach=device.is_cuda)
        if program.in_backward:
            # Among operations of backward, their making would move the others.
            make_states(iteration.optimizers)
        with _as_asked(iteration.model, device) as notes:
            # Recorded for failures, and for lifetimes on a tape.
            tape = TapeRecorder(gives_away=True) if taped else None
            warm_up = Recorder(ModuleTracker(iteration.own_model), StorageTable(), tape=tape, only_failures=not taped)
            blame(warm_up)
            with warm_up.recording():
                as_it_is = taped or device.real or device.compiled
                iteration.warm_up(warm_up.enter, whole=as_it_is or program.layout is not None)
            if program.layout is not None and program.layout.is_replicated:
                # The second forward of DistributedDataParallel orders its buckets anew.
                iteration.run(lambda _: None)
            first = _recorded(iteration, device, warm_up, blame, notes, TapeRecorder() if taped else None)
            yield _attending(gpu, *first)
            for other in others:
                # What the model keeps from one iteration to the next is constant in it.
                keeps_nothing = not any(each.constant for each in first[0].storages)
                iteration = adapted(iteration, other, keeps_nothing=keeps_nothing)
                # FSDP's state after forward alone is another.
                iteration.warm_up(lambda _: None, whole=program.layout is not None)
                yield _attending(gpu, *_recorded(iteration, device, warm_up, blame, notes))


def _attending(gpu: Gpu | None, step: CapturedStep, tape: Tape | None) -> tuple[CapturedStep, Tape | None]:
    return msgspec.structs.replace(step, largest_head=gpu.largest_head if gpu else 0), tape


def _recorded(
    iteration: Iteration,
    device: CaptureDevice,
    warm_up: Recorder,
    blame: Callable[[Recorder], None],
    notes: tuple[str, ...],
    recording: TapeRecorder | None = None,
) -> tuple[CapturedStep, Tape | None]:
    """Record an iteration, on a tape if there is one; lifetimes that the program alone decides are of the warm-up."""
    model = iteration.own_model
    modules, storages = ModuleTracker(model), StorageTable()
    host = add_given(iteration, modules, storages, is_cuda=device.is_cuda)
    blame(recorder := Recorder(modules, storages, host, tape=recording))
    gradients: list[int] = []
    # FSDP exchanges them; else they are found once, for updates in backward ask for each of them.
    parameters = None if iteration.program.layout else list(model.parameters())

    def enter(phase: Phase) -> None:
        recorder.enter(phase)
        if phase is Phase.UPDATE:
            found = (each.grad for each in parameters or model.parameters() if each.grad is not None)
            gradients.extend(number for each in found if (number := storages.number_of(each)) is not None)

    with noting_calls(model, recorder.records) as forwards, _no_collection(), recorder.recording():
        held = iteration.run(enter)
    let_go = freed_by_program(warm_up.records, [each.freed_after for each in warm_up.storages.lives], recorder.records)
    numbers = recorder.finish()
    let_go = {numbers[each]: end for each, end in let_go.items()}
    tape = recording.finish(numbers, let_go, recorder.records, forwards) if recording else None
    assign_kinds(recorder.records, storages.lives, [numbers[each] for each in gradients])
    if not device.real:
        refuse_float8(recorder.records, modules.modules)
    if not device.real and any("mkldnn_rnn_layer" in each.name for each in recorder.records):
        notes += ("The reserve of oneDNN's recurrent layers is missing: it is known only when they run (`--real`).",)
    if (layout := iteration.program.layout) and layout.offloads:
        notes += (OFFLOADED,)
    step = _step(iteration.program, device, iteration, recorder.records, modules, storages, notes)
    del held
    return step, tape


@contextmanager
def _blamed(program: Program) -> Iterator[Callable[[Recorder], None]]:
    """Raise a failure within as a `CaptureError` of the user's code; yields a function that registers recorders."""
    recorders: list[Recorder] = []
    try:
        yield recorders.append
    except VdnnsimError:
        raise
    except Exception as failure:
        split = about_split(failure, program.layout)
        for recorder in recorders:
            if recorder.failure is not None and recorder.failure[0] is failure:
                keep_user_frames(failure)
                raise CaptureError(f"{program.name}: {recorder.failure[1]}{split}") from failure
        refusal = CaptureError(f"{failure_outside(failure, program.name)}{split}")
        keep_user_frames(failure)
        raise refusal from failure
    finally:
        for recorder in recorders:
            # Else cycles that the collector does not see: recorder, failure or model, autograd's graph, its hooks.
            vars(recorder).clear()


def _as_rank(program: Program, device: CaptureDevice) -> AbstractContextManager[None]:
    if program.layout is None:
        return nullcontext()
    from calibration.capture.parallel.world import rank_of

    return rank_of(program.layout.ranks, device.device_type, program.layout.rank)


def _as_asked(model: nn.Module, device: CaptureDevice) -> AbstractContextManager[tuple[str, ...]]:
    """Run a model eagerly, or as torch.compile makes it; yields notes about it."""
    if not device.compiled:
        return run_eagerly(model)
    assert device.compute_capability is not None, "compiled for CUDA"
    # Inductor is seconds of imports.
    from calibration.capture.compiled import compiling

    return compiling(model, device.compute_capability)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable Python's cyclic collector, which would free memory at random times."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _step(
    program: Program,
    device: CaptureDevice,
    iteration: Iteration,
    records: list[Record],
    modules: ModuleTracker,
    storages: StorageTable,
    notes: tuple[str, ...],
) -> CapturedStep:
    operations = tuple(
        StepOperation(
            name=each.name,
            module=each.module,
            # Policies know updates at the end of an iteration alone.
            phase=Phase.BACKWARD if program.in_backward and each.phase is Phase.UPDATE else each.phase,
            operands=operands_of(each, records, storages.lives),
            element_type=each.demand.element_type,
            flop=dict(each.demand.effort.flop),
            bytes_moved=each.demand.bytes_moved,
            temporary_bytes=each.demand.temporary_bytes * device.is_cuda,
            copied_bytes=each.demand.copied_bytes * device.is_cuda,
            sectors=each.demand.sectors if device.is_cuda else NO_SECTORS,
            forward=each.forward,
            random=each.random,
            saves=tuple(each.saves),
            work=each.demand.effort.work,
            known=each.demand.effort.known,
            collective=each.collective,
            aside=each.aside,
        )
        for each in records
    )
    return CapturedStep(
        version=VERSION,
        model=program.name,
        framework=program.versions or f"torch {torch.__version__.partition('+')[0]}",
        device=device.name,
        batch_size=program.batch_size * program.micro_batches,
        sample=program.sample,
        sample_elements=program.sample_elements,
        mode=program.mode,
        precision=precision_of(program, iteration.model),
        optimizer=program.optimizer,
        in_backward=program.in_backward,
        param_groups=program.param_groups,
        loss_chunks=program.loss_chunks,
        parameters=sum(map(size_of, iteration.model.parameters())),
        modules=modules.modules,
        storages=storages.storages(),
        tensors=storages.tensors,
        operations=operations,
        notes=(*program.notes, *([NOTE.format(program.loss_chunks)] if program.loss_chunks > 1 else ()), *notes),
        compiled=device.compiled,
        parallel=program.layout.text if program.layout else "",
        ranks=program.layout.ranks if program.layout else 1,
        pipeline=program.layout.pipeline if program.layout else 1,
        position=program.layout.position if program.layout else 0,
        micro_batches=program.micro_batches,
    )
