"""Models as torch.compile makes them, captured, and compiled and run on a pretended GPU.

    python -m calibration.pretend --hardware h100_sxm -- python -m reports.capture.compiled --out reports/capture

On the pretended GPU Triton compiles the kernels, and PyTorch's allocator places the buffers. Each model has a process,
for libraries keep memory.
"""

import gc
import multiprocessing
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from difflib import SequenceMatcher
from itertools import accumulate
from pathlib import Path
from typing import Any

import click
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from calibration.capture.capture import capture
from calibration.capture.iteration import Iteration
from calibration.capture.preparation import prepare
from calibration.capture.program import CaptureDevice, Program
from calibration.pretend.inside.compiled import timed_kernels
from reports.capture.case import Case
from reports.capture.compiled_cases import CASES
from reports.capture.pretended import ITERATIONS, simulated_peaks
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.report.document import Heading
from vdnnsim.report.markdown import escape, page, table
from vdnnsim.report.result_table import write_csv

CARD = "h100_sxm"
_IDENTITY = re.compile(r"^(triton_[a-z]+)_.*_(\d+)$")
"""What tells kernels of Inductor apart: kind and number. Words between name operators, constants among them."""
_NO_KERNEL = ("aten.empty", "aten._unsafe_view", "aten.lift_fresh", "aten.set_")


@dataclass(frozen=True)
class Row:
    """Of a model; kernels are those of forward and backward, peaks in bytes.

    Attributes:
        in_order: kernels that are the same, in the same order.
        live_off: largest difference of requested bytes after such a kernel, relative to the largest of them.
    """

    model: str
    captured_kernels: int
    pretended_kernels: int
    in_order: int
    live_off: float
    captured_peak: int
    simulated_allocated: int
    pretended_allocated: int

    @property
    def allocated_off(self) -> float:
        """By how much the simulated peak is off."""
        return self.simulated_allocated / self.pretended_allocated - 1


Kernels = Sequence[tuple[str, int]]
"""Each by its name, with the bytes that are requested after it beyond those at the begin of the iteration."""


def row_of(case: Case) -> Row:
    """Capture a model, and compile and run it on the pretended GPU."""
    program = case.program
    step = capture(program, CaptureDevice(compute_capability=torch.cuda.get_device_capability(), compiled=True))
    iteration = _compiled(program)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(ITERATIONS - 1):
        iteration.run(lambda _: None)
    allocated = torch.cuda.max_memory_allocated()
    captured, pretended = _kernels_of(step), _kernels_on_gpu(iteration)
    first, second = ([_IDENTITY.sub(r"\1_\2", name) for name, _ in each] for each in (captured, pretended))
    same = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    off = [
        abs(captured[block.a + each][1] - pretended[block.b + each][1]) for block in same for each in range(block.size)
    ]
    return Row(
        case.name,
        len(captured),
        len(pretended),
        len(off),
        max(off, default=0) / max(nbytes for _, nbytes in pretended),
        step.peak_live_bytes,
        simulated_peaks(step, CARD).allocated_bytes or 0,
        allocated,
    )


def _compiled(program: Program) -> Iteration:
    """Return a compiled iteration after its first run, in which kernels are tuned, without what was reserved for it."""
    iteration = prepare(program, program.make_model(), "cuda", foreach=True)
    iteration.model.forward = torch.compile(iteration.model.forward, dynamic=False)
    iteration.run(lambda _: None)
    gc.collect()  # Frames that were traced refer to each other, and to results, as logits.
    # Of this iteration they are made again; those of a model before it would stay, though this one has no products.
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
    torch.cuda.empty_cache()
    return iteration


def _kernels_of(step: CapturedStep) -> Kernels:
    changes = [0] * (len(step.operations) + 1)
    for number, position in step.first_use.items():
        storage = step.storages[number]
        if not storage.given:
            changes[position] += storage.nbytes
            if storage.freed_after is not None:
                changes[storage.freed_after + 1] -= storage.nbytes
    return [
        (each.name.removeprefix("triton::"), nbytes)
        for each, nbytes in zip(step.operations, accumulate(changes), strict=False)
        if each.phase is not Phase.UPDATE and not each.name.startswith(_NO_KERNEL)
    ]


class _Noted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes kernels with the memory after them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels: list[tuple[str, int]] = []
        self.phase = Phase.FORWARD
        self._begin = self._requested()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def enter(self, phase: Phase) -> None:
        self.phase = phase

    def note(self, name: str, _moved_bytes: float, launch: Callable[[], Any]) -> Any:  # noqa: ANN401
        result = launch()
        if self.phase is not Phase.UPDATE:
            self.kernels.append((name, self._requested() - self._begin))
        return result

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func.is_view or str(func).startswith(_NO_KERNEL):
            return func(*args, **(kwargs or {}))
        return self.note(str(func), 0, lambda: func(*args, **(kwargs or {})))

    @staticmethod
    def _requested() -> int:
        return int(torch.cuda.memory_stats()["requested_bytes.all.current"])


def _kernels_on_gpu(iteration: Iteration) -> Kernels:
    with _Noted() as noted, timed_kernels(noted.note):
        iteration.run(noted.enter)
    kernels: Kernels = noted.kernels
    return kernels


def compiled_page(rows: Sequence[Row]) -> str:
    """Return the page of all models."""
    equal = sum(row.in_order == row.captured_kernels == row.pretended_kernels for row in rows)
    close = sum(abs(row.allocated_off) <= 0.01 for row in rows)
    return page(
        (
            Heading("Compiled models, captured, and compiled and run on a pretended GPU", 1),
            escape(
                f"On a pretended {CARD}, in bfloat16 by autocast, {ITERATIONS} iterations with AdamW; "
                "`python -m reports.capture.compiled`. Captured for a card that is not there, without Triton; on the "
                "pretended GPU as a user's script runs, with Triton's kernels and PyTorch's allocator."
            ),
            escape(
                f"Kernels of forward and backward are the same in the same order in {equal} of {len(rows)} models; "
                f"allocated peaks are within 1 % in {close}. Live memory is what is requested after each kernel, "
                "beyond what is held when an iteration begins, relative to its peak. Workspaces of libraries are not "
                "captured; what is simulated has them, those of convolutions by a rule. The allocator leaves up to "
                "1 MiB of a free block unsplit, which shows in models as small as these. Kernels are tuned in a first "
                "iteration, which is not counted."
            ),
            table(
                (
                    "model",
                    "kernels",
                    "captured",
                    "in order",
                    "live memory off by at most",
                    "captured peak, MiB",
                    "allocated, MiB",
                    "simulated",
                ),
                [
                    (
                        escape(row.model),
                        str(row.pretended_kernels),
                        str(row.captured_kernels),
                        str(row.in_order),
                        f"{row.live_off:.2%}",
                        *(f"{each / 2**20:.1f}" for each in (row.captured_peak, row.pretended_allocated)),
                        f"{row.allocated_off:+.2%}",
                    )
                    for row in rows
                ],
                1,
            ),
        )
    )


def _row(name: str) -> Row:
    return row_of(CASES[name])


@click.command()
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Where to write.")
@click.argument("names", nargs=-1, type=click.Choice([*CASES]))
def main(out: Path, names: Sequence[str]) -> None:
    """Run all models, or some, and write compiled.csv and compiled.md."""
    rows = []
    for name in names or CASES:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
            rows.append(process.submit(_row, name).result())
        click.echo(", ".join(map(str, astuple(rows[-1]))))
        write_csv(out / "compiled.csv", [each.name for each in fields(Row)], [astuple(row) for row in rows])
        (out / "compiled.md").write_text(compiled_page(rows))


if __name__ == "__main__":
    main()
