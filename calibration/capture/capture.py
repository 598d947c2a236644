"""Captures one iteration of a program as a step."""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.capture.as_cuda import as_cuda
from calibration.capture.failures import failure_outside
from calibration.capture.fake_tensors import FakeTensors, convertible, undrawn
from calibration.capture.modules import ModuleTracker
from calibration.capture.nodes import is_in_backward
from calibration.capture.program import Iteration, Program, prepare, replace_tensors
from calibration.capture.record import Record
from calibration.capture.recorder import Recorder
from calibration.capture.roles import assign_kinds, operands_of
from calibration.capture.storages import StorageTable
from calibration.capture.tape import Tape, freed_by_program
from vdnnsim.dnn.captured_step import VERSION, CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, StepOperation
from vdnnsim.errors import CaptureError, VdnnsimError


@dataclass(frozen=True)
class CaptureDevice:
    """As what, and with what, a program is captured.

    Attributes:
        real: whether tensors have memory.
        compute_capability: of the CUDA device whose choice of operators fake tensors follow; None for the CPU's.
        device_type: of real tensors, `cpu` or `cuda`.
    """

    real: bool = False
    compute_capability: tuple[int, int] | None = (8, 9)
    device_type: str = "cpu"

    @property
    def name(self) -> str:
        """As a captured step calls it, `cuda 8.9`."""
        if self.real and self.device_type == "cuda":
            return "cuda {}.{}".format(*torch.cuda.get_device_capability())
        if self.real or self.compute_capability is None:
            return "cpu"
        return "cuda {}.{}".format(*self.compute_capability)

    @property
    def is_cuda(self) -> bool:
        """Whether operators are those of CUDA."""
        return self.name != "cpu"


def capture(program: Program, device: CaptureDevice) -> CapturedStep:
    """Return one iteration of a program; see `capture_with_tape`."""
    return capture_with_tape(program, device)[0]


def capture_with_tape(program: Program, device: CaptureDevice) -> tuple[CapturedStep, Tape]:
    """Return one iteration of a program, and what autograd saves and takes of it.

    The iteration before it has made the states of the optimizer, and what models keep; autograd holds nothing in it, so
    that one sees when the program lets go of what is saved.

    Raises:
        CaptureError: the program cannot be captured; the message says why, and where in a user's code.
    """
    fakes = None if device.real else FakeTensors()
    as_gpu = as_cuda(device.compute_capability) if fakes is not None and device.compute_capability else nullcontext()
    with fakes or nullcontext(), as_gpu, _blamed(program.name) as blame:
        with ExitStack() as making:
            if fakes is not None:
                making.enter_context(undrawn())
                making.enter_context(convertible())
                making.enter_context(warnings.catch_warnings())
                # Modules that copy one of their own ask for it, as a transformer's encoder does.
                warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
            model = program.make_model()
        if fakes is not None:
            replace_tensors(model, fakes.fake, buffers=False)
        iteration = prepare(program, model, device.device_type, foreach=device.is_cuda)
        with _run_eagerly(model) as notes:
            # Recorded in vain, but for what fails in it.
            blame(warm_up := Recorder(ModuleTracker(model), StorageTable(), gives_away=True))
            with warm_up.recording():
                iteration.run(warm_up.enter)
            modules, storages = ModuleTracker(model), StorageTable()
            host = _given(iteration, modules, storages, is_cuda=device.is_cuda)
            blame(recorder := Recorder(modules, storages, host))
            gradients: list[int] = []
            returned = 0

            def note_return(*_: object) -> None:
                nonlocal returned
                # A checkpoint calls it again.
                if not is_in_backward():
                    returned = len(recorder.records)

            def enter(phase: Phase) -> None:
                recorder.enter(phase)
                if phase is Phase.UPDATE:
                    found = (each.grad for each in model.parameters() if each.grad is not None)
                    gradients.extend(number for each in found if (number := storages.number_of(each)) is not None)

            with model.register_forward_hook(note_return), _no_collection(), recorder.recording():
                held = iteration.run(enter)
            let_go = freed_by_program(
                warm_up.records, [each.freed_after for each in warm_up.storages.lives], recorder.records
            )
            numbers = recorder.finish()
            let_go = {numbers[each]: end for each, end in let_go.items()}
            tape = recorder.tape.finish(numbers, let_go, recorder.records, returned)
        assign_kinds(recorder.records, storages.lives, [numbers[each] for each in gradients])
        if fakes is not None and any("mkldnn_rnn_layer" in each.name for each in recorder.records):
            notes += ("What oneDNN keeps of recurrent layers is left out: it says so only when it runs (`--real`).",)
        step = _step(program, device, iteration, recorder.records, modules, storages, notes)
        del held
    return step, tape


@contextmanager
def _blamed(name: str) -> Iterator[Callable[[Recorder], None]]:
    """Raise what fails within as a user's failure; is told who records what runs.

    Raises:
        CaptureError: anything failed.
    """
    recorders: list[Recorder] = []
    try:
        yield recorders.append
    except VdnnsimError:
        raise
    except Exception as failure:
        for recorder in recorders:
            if recorder.failure is not None and recorder.failure[0] is failure:
                raise CaptureError(f"{name}: {recorder.failure[1]}") from failure
        raise failure_outside(failure, name) from failure
    finally:
        for recorder in recorders:
            # Autograd's graph holds it by its hooks, which no collector sees, and the failure holds the graph.
            recorder.failure = None


@contextmanager
def _run_eagerly(model: nn.Module) -> Iterator[tuple[str, ...]]:
    """Run modules that `torch.compile` made as they were before; yield what is to be said of it."""
    compiled = any(
        type(each).__name__ == "OptimizedModule" or each._compiled_call_impl is not None  # noqa: SLF001
        for each in model.modules()
    )
    if compiled:
        with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            # A compiled module and the one within it are told apart by their paths.
            warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
            yield ("What torch.compile made of modules was run as it was before: compiled, it may need less memory.",)
    else:
        yield ()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Let memory be freed when nobody holds it, and never at a whim of Python's collector of cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _given(iteration: Iteration, modules: ModuleTracker, storages: StorageTable, *, is_cuda: bool) -> frozenset[int]:
    """Add what is there when the iteration begins; return the identities of storages in host memory."""
    owners = modules.of_parameters()
    names = {key: path for key, (_, path) in owners.items()}
    for parameter in iteration.model.parameters():
        storages.add(parameter, names[id(parameter)], BufferKind.WEIGHTS, given=True)
    for buffer in iteration.model.buffers():
        storages.add(buffer, names[id(buffer)], BufferKind.STATISTICS, given=True)
    for number, batch in enumerate(iteration.batches):
        for tensor in tree_leaves(batch):
            if isinstance(tensor, torch.Tensor):
                storages.add(tensor, f"input {number}", BufferKind.FEATURE_MAP, given=True)
    for number, tensor in enumerate(iteration.program.labels()):
        storages.add(tensor, f"labels {number}", BufferKind.FEATURE_MAP, given=True)
    for name, tensor in vars(iteration.scaler).items() if iteration.scaler else ():
        if isinstance(tensor, torch.Tensor):
            storages.add(tensor, f"scaler {name.strip('_')}", BufferKind.OPTIMIZER_STATE, given=True)
    return _states(iteration, names, storages, is_cuda=is_cuda)


def _states(iteration: Iteration, names: Mapping[int, str], storages: StorageTable, *, is_cuda: bool) -> frozenset[int]:
    """Add the states of the optimizer; return the identities of those in host memory.

    On CUDA these are the counts of steps, unless a kernel reads them.
    """
    host: set[int] = set()
    optimizer = iteration.optimizer
    if optimizer is None:
        return frozenset(host)
    for group in optimizer.param_groups:
        counts_on_host = is_cuda and not (group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            for key, state in optimizer.state[parameter].items():
                if isinstance(state, torch.Tensor) and key == "step" and counts_on_host:
                    host.add(state.untyped_storage()._cdata)  # noqa: SLF001 - its identity
                elif isinstance(state, torch.Tensor):
                    storages.add(state, f"{names[id(parameter)]} {key}", BufferKind.OPTIMIZER_STATE, given=True)
    return frozenset(host)


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
            phase=each.phase,
            operands=operands_of(each, records, storages.lives),
            element_type=each.element_type,
            flop=dict(each.effort.flop),
            bytes_moved=each.bytes_moved,
            forward=each.forward,
            random=each.random,
            saves=tuple(each.saves),
            work=each.effort.work,
            known=each.effort.known,
        )
        for each in records
    )
    return CapturedStep(
        version=VERSION,
        model=program.name,
        framework=program.versions or f"torch {torch.__version__.partition('+')[0]}",
        device=device.name,
        batch_size=program.batch_size,
        sample=program.sample,
        sample_elements=program.sample_elements,
        mode=program.mode,
        precision=program.precision,
        optimizer=program.optimizer,
        parameters=sum(each.numel() for each in iteration.model.parameters()),
        modules=modules.modules,
        storages=storages.storages(),
        tensors=storages.tensors,
        operations=operations,
        notes=program.notes + notes,
    )
