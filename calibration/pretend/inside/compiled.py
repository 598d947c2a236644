"""What torch.compile does on a pretended GPU: labels of its memory, and bytes that its kernels move.

Hooks of modules would be traced with them, so there are none once anything is compiled; Inductor's graphs are labelled
instead. Kernels last for Inductor's own estimate of their bytes, or for those of the tensors that they are given.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .imports import when_imported
from .modules import ModuleLabels


class Compiler:
    """Follows torch.compile in this process."""

    def __init__(self) -> None:
        self._labels: ModuleLabels | None = None
        self._compiles = False
        compile_with = torch.compile

        @functools.wraps(compile_with)
        def follow(*arguments: Any, **names: Any) -> Any:  # noqa: ANN401 - as PyTorch has it
            self._compiles = True
            # Caches are disabled by us, not by the user.
            warnings.filterwarnings("ignore", "dynamo_pgo force disabled")
            self.labels = self._labels
            return compile_with(*arguments, **names)

        torch.compile = follow
        when_imported("torch._inductor.codegen.triton", _state_bytes)
        when_imported("torch._inductor.output_code", self._label_graphs)
        when_imported("torch._inductor.runtime.triton_heuristics", self._label_tuning)

    @property
    def labels(self) -> ModuleLabels | None:
        """Labels memory; None before there is a GPU, and when peaks are read no more."""
        return self._labels

    @labels.setter
    def labels(self, labels: ModuleLabels | None) -> None:
        self._labels = labels
        if labels is not None and self._compiles:
            labels.leave_modules()

    def _label_graphs(self) -> None:
        graphs = sys.modules["torch._inductor.output_code"].CompiledFxGraph
        run = graphs.__call__

        def labelled(graph: Any, inputs: Any) -> Any:  # noqa: ANN401 - as Inductor has it
            phase = "backward" if graph.fx_kwargs.get("is_backward") else "forward"
            with self._labelled(phase, f"compiled graph {graph.fx_kwargs.get('graph_id')}"):
                return run(graph, inputs)

        graphs.__call__ = labelled

    def _label_tuning(self) -> None:
        tuner = sys.modules["torch._inductor.runtime.triton_heuristics"].CachingAutotuner
        tune = tuner.autotune_to_one_config

        def labelled(kernel: Any, *arguments: Any, **names: Any) -> Any:  # noqa: ANN401 - as Inductor has it
            with self._labelled("tuning", kernel.fn.__name__):
                return tune(kernel, *arguments, **names)

        tuner.autotune_to_one_config = labelled

    @contextmanager
    def _labelled(self, phase: str, what: str) -> Iterator[None]:
        if self._labels is None:
            yield
        else:
            with self._labels.labelled(phase, what):
                yield


def _state_bytes() -> None:
    """Have Inductor state in each kernel what it moves, as it does where it is asked to measure bandwidth."""
    kernels = sys.modules["torch._inductor.codegen.triton"].TritonKernel
    write = kernels.codegen_kernel

    def stating(kernel: Any, *arguments: Any, **names: Any) -> Any:  # noqa: ANN401 - as Inductor has it
        common = kernel.inductor_meta_common
        kernel.inductor_meta_common = lambda: {**common(), "kernel_num_gb": kernel.estimate_kernel_num_bytes() / 1e9}
        return write(kernel, *arguments, **names)

    kernels.codegen_kernel = stating


@contextmanager
def timed_kernels(time: Callable[[str, float, Callable[[], Any]], Any]) -> Iterator[None]:
    """Pass launches of Triton's kernels to `time`, with a name and bytes, while it is active."""
    tuners, jit = (
        sys.modules.get(name) for name in ("torch._inductor.runtime.triton_heuristics", "triton.runtime.jit")
    )
    classes = [*([tuners.CachingAutotuner] if tuners else ()), *([jit.JITFunction] if jit else ())]
    runs = {each: each.run for each in classes}

    def timed(run: Callable[..., Any]) -> Callable[..., Any]:
        def launch(kernel: Any, *arguments: Any, **names: Any) -> Any:  # noqa: ANN401 - as Triton has it
            function = getattr(kernel, "fn", kernel)
            gigabytes = getattr(kernel, "inductor_meta", {}).get("kernel_num_gb")
            given = [each for each in (*arguments, *names.values()) if isinstance(each, torch.Tensor)]
            moved = sum(each.nbytes for each in given) if gigabytes is None else 1e9 * gigabytes
            return time(function.__name__, moved, lambda: run(kernel, *arguments, **names))

        return launch

    for each, run in runs.items():
        each.run = timed(run)
    try:
        yield
    finally:
        for each, run in runs.items():
            each.run = run
