"""Metrics of the claims of Kim et al. (2018): largest batches, images per second, their ratios."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vdnnsim.claims.check import Metric, Metrics
from vdnnsim.claims.claim import Claim, NetworkBatch
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.claims.swap2018.stated import Place


def _metric(words: str, compute: Callable[[ServerRuns, tuple[Place, str], int, Claim], float]) -> Metric:
    return Metric(words, lambda runs, q, case: float(compute(runs, (Place(q.hardware, q.gpus), case[0]), case[1], q)))


_NAMED: Final[Mapping[str, Metric]] = {
    "largest_batch": _metric("largest batch", lambda r, at, _, q: r.largest(*at, q.policy).batch_size),
    "largest_batch_throughput": _metric(
        "throughput at the largest batch", lambda r, at, _, q: r.largest_images_per_s(*at, q.policy)
    ),
    "largest_batch_ratio": _metric(
        "largest batch", lambda r, at, _, q: r.largest(*at, q.policy).batch_size / r.largest(*at, q.baseline).batch_size
    ),
    "throughput_ratio": _metric(
        "throughput", lambda r, at, n, q: r.iteration_s(*at, n, q.baseline) / r.iteration_s(*at, n, q.policy)
    ),
}


def _seen_in(claim: Claim, _: Sequence[NetworkBatch]) -> str:
    return f"scenarios/swap2018_{claim.gpus}gpu{'s' * (claim.gpus > 1)}.yaml"


METRICS: Final = Metrics[ServerRuns](_NAMED, _seen_in)
