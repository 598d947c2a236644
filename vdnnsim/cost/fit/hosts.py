"""The fit of dispatch times of hosts: `python -m vdnnsim.cost.fit hw_profiles/hosts.fit.csv`.

Rows are host-bound steps of networks with small batches. Each is the sum of

    input_bytes / 4 GB/s + issue x calls
        + dispatch_forward x (operators + parameters / 3) + dispatch_backward x nodes + dispatch_library x library_calls

`operators` of forward, `nodes` of autograd (runs of operations of backward of one operator of forward), `kernels` of
backward and calls of cuDNN are counted in captures as the engine counts them (`vdnnsim.engine.host`); every operator
and kernel is a call of 5 us. The script of the source copies its images from pageable memory within the step, at a rate
found from its inference in both element types, and zeroes `parameters` gradients one by one, for a third of the time of
an operator (measured with PyTorch 2.14), to which backward adds: two more calls each. It updates no weights. The fit
minimizes squares of relative errors; each family of networks is left out in turn.

Source: ryujaehun/pytorch-gpu-benchmark at 3f47a9e2 (MIT), medians of torchvision networks, batch 12.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from vdnnsim.hardware.profile import find_profile, read_profile

if TYPE_CHECKING:
    import pandas as pd

PAGEABLE_BYTES_PER_S: Final = 4e9
"""At which the script copies its images."""
_ISSUE_S: Final = 5e-6
ZEROED: Final = 1 / 3
"""Time to zero a gradient, over that of an operator of forward."""


def fit_host(rows: "pd.DataFrame") -> list[float]:
    """Return dispatch_forward, dispatch_backward and dispatch_library in seconds, of the rows of one host."""
    known, counts = _known_and_counts(rows)
    fitted = np.linalg.lstsq(counts.div(rows.seconds, axis=0), 1 - known / rows.seconds, rcond=None)[0]
    return list(map(float, fitted))


def left_out_s(rows: "pd.DataFrame") -> "pd.Series":
    """Return the seconds of each row of one host by a fit without its family."""
    found = 0.0 * rows.seconds
    for family in rows.family.unique():
        known, counts = _known_and_counts(rows[rows.family == family])
        found[known.index] = known + counts @ fit_host(rows[rows.family != family])
    return found


def host_report(path: Path) -> Iterator[str]:
    """Yield every row with its prediction when left out, the errors, and fitted beside stated parameters."""
    import pandas as pd

    table = pd.read_csv(path)
    for name, rows in table.groupby("host", sort=False):
        found = left_out_s(rows)
        errors = found / rows.seconds - 1
        for row, seconds, error in zip(rows.itertuples(), found, errors, strict=True):
            what = f"{name} {row.network} {row.mode} {row.element_type}"
            yield f"{what:52} {row.seconds * 1e3:7.2f} ms, left out {seconds * 1e3:7.2f}, {error:+.1%}"
        error, bias = errors.abs().mean(), errors.mean()
        yield f"{name}: {len(rows)} rows, families left out: {error:.1%} on average, bias {bias:+.1%}"
        host = read_profile(find_profile(name, Path())).host
        stated = host.dispatch_forward_s, host.dispatch_backward_s, host.dispatch_library_s
        for key, fitted, has in zip(("forward", "backward", "library"), fit_host(rows), stated, strict=True):
            yield f"{name}: dispatch_{key} {fitted * 1e6:.1f} us; the profile states {has * 1e6:.1f}"


def _known_and_counts(rows: "pd.DataFrame") -> "tuple[pd.Series, pd.DataFrame]":
    """Return the seconds beside dispatches, and the number of each kind of dispatch."""
    calls = rows.operators + rows.kernels + 2 * rows.parameters
    known = rows.input_bytes / PAGEABLE_BYTES_PER_S + _ISSUE_S * calls
    counts = rows[["nodes", "library_calls"]].copy()
    counts.insert(0, "operators", rows.operators + ZEROED * rows.parameters)
    return known, counts
