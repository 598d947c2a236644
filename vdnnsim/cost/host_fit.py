"""Fits what the hosts of profiles spend before kernels: `python -m vdnnsim.cost.host_fit hw_profiles/hosts.fit.csv`.

Rows are steps of networks on batches so small that the GPU waits for its host. Each is the sum of what the host does:

    input_bytes / 4 GB/s + issue x calls
        + dispatch_forward x (operators + parameters / 3) + dispatch_backward x nodes + dispatch_library x library_calls

`operators` of forward, `nodes` of autograd (runs of operations of backward of one operator of forward), `kernels` of
backward and calls of cuDNN are counted in captures of the networks as the engine counts them (`vdnnsim.engine.host`);
every operator and every kernel is a call, of 5 us. The script that
measured copies its images from pageable memory within the step, at a rate that its inference in both element types
tells, and zeroes `parameters` gradients one by one, for a third of what an operator takes (measured with PyTorch 2.14),
to which backward adds: two more calls each. It updates no weights.

Minimized are squares of relative errors. A family of networks is left out of the fit in turn, and what it is then
predicted is printed beside what it took. It writes no file.

Source: ryujaehun/pytorch-gpu-benchmark at 3f47a9e2 (MIT), medians of torchvision networks, batch 12.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from vdnnsim.hardware.profile import find_profile, read_profile

PAGEABLE_BYTES_PER_S: Final = 4e9
"""At which that script copies its images."""
_ISSUE_S: Final = 5e-6
ZEROED: Final = 1 / 3
"""Of what an operator of forward takes, to zero a gradient."""


@dataclass(frozen=True, slots=True)
class HostRow:
    """A step that waits for its host.

    Attributes:
        host: the profile that states it.
        operators, nodes, kernels, library_calls, parameters, input_bytes: as above.
    """

    host: str
    network: str
    family: str
    mode: str
    element_type: str
    operators: int
    nodes: int
    kernels: int
    library_calls: int
    parameters: int
    input_bytes: int
    seconds: float

    @property
    def known_s(self) -> float:
        """What is left of it where a framework spends nothing."""
        calls = self.operators + self.kernels + 2 * self.parameters
        return self.input_bytes / PAGEABLE_BYTES_PER_S + _ISSUE_S * calls

    @property
    def counts(self) -> tuple[float, ...]:
        """How often what is fitted is spent."""
        return self.operators + ZEROED * self.parameters, self.nodes, self.library_calls


def read_host_rows(path: Path) -> tuple[HostRow, ...]:
    """Return the rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(msgspec.convert(row, HostRow, strict=False) for row in csv.DictReader(file))


def fit_host(rows: Sequence[HostRow]) -> tuple[float, ...]:
    """Return dispatch_forward, dispatch_backward and dispatch_library in seconds."""
    seconds = np.array([row.seconds for row in rows])
    counts = np.array([row.counts for row in rows]) / seconds[:, None]
    known = np.array([row.known_s for row in rows]) / seconds
    return tuple(map(float, np.linalg.lstsq(counts, 1 - known, rcond=None)[0]))


def predicted_s(row: HostRow, fitted: Sequence[float]) -> float:
    """Return the seconds of a row."""
    return row.known_s + sum(count * each for count, each in zip(row.counts, fitted, strict=True))


def left_out(rows: Sequence[HostRow]) -> Iterator[tuple[HostRow, float]]:
    """Yield each row of one host with its seconds by a fit without its family."""
    for row in rows:
        yield row, predicted_s(row, fit_host([each for each in rows if each.family != row.family]))


def report(rows: Sequence[HostRow]) -> Iterator[str]:
    """Yield what the fit says, line by line: every row, errors, and the figures beside those that profiles state."""
    for name in dict.fromkeys(row.host for row in rows):
        own = [row for row in rows if row.host == name]
        errors = []
        for row, seconds in left_out(own):
            errors.append(seconds / row.seconds - 1)
            what = f"{name} {row.network} {row.mode} {row.element_type}"
            yield f"{what:52} {row.seconds * 1e3:7.2f} ms, left out {seconds * 1e3:7.2f}, {errors[-1]:+.1%}"
        error, bias = sum(map(abs, errors)) / len(errors), sum(errors) / len(errors)
        yield f"{name}: {len(own)} rows, families left out: {error:.1%} on average, bias {bias:+.1%}"
        host = read_profile(find_profile(name, Path())).host
        for key, fitted, has in zip(("forward", "backward", "library"), fit_host(own), host.issuing[1:], strict=True):
            yield f"{name}: dispatch_{key} {fitted * 1e6:.1f} us; the profile states {has * 1e6:.1f}"


if __name__ == "__main__":  # pragma: no cover - what it prints is tested
    print(*report(read_host_rows(Path(sys.argv[1]))), sep="\n")  # noqa: T201
