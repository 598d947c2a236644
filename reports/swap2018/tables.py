"""Tables I to III beside the simulated ones: images per second of a GPU, and what fits."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vdnnsim.claims.swap2018.runs import NONE, TABLES_OF_SPEED, VGG, Place, ServerRuns

INCEPTION = "inception_v3"
SWAP = "swap(tensorflow, interval=3)"
STAGGERED = "staggered_swap(tensorflow, interval=3)"

TABLE_I: Mapping[tuple[str, str], tuple[int, float]] = {
    (VGG, NONE): (80, 62.95),
    (VGG, "swap(tensorflow, interval=1)"): (128, 73.93),
    (INCEPTION, NONE): (114, 62.67),
    (INCEPTION, "swap(tensorflow, interval=2)"): (150, 63.34),
}
"""By network and policy, the largest batch on one Titan Xp and images per second there."""


class Cell(NamedTuple):
    """Images per second of a GPU under a policy, in the paper and simulated: a row of `tables.csv`.

    Attributes:
        batch_size: of Table I the largest that fits, in the paper another.
        paper_samples_per_s: None where the paper ran out of memory.
        fits: whether the replay fits; where it does not its speed is that of GPUs with unlimited memory.
    """

    table: str
    network: str
    gpus: int
    policy: str
    batch_size: int
    paper_samples_per_s: float | None
    samples_per_s: float
    fits: bool


def line_of_table_1(network: str = VGG) -> tuple[float, float]:
    """Return seconds an image, and seconds besides, of an iteration: through the two rows of a network in Table I."""
    (small, slow), (large, fast) = (TABLE_I[key] for key in TABLE_I if key[0] == network)
    per_image_s = (large / fast - small / slow) / (large - small)
    return per_image_s, small / slow - per_image_s * small


def throughput_cells(runs: ServerRuns) -> tuple[Cell, ...]:
    """Replay Tables II and III."""
    return tuple(
        Cell(
            table=name,
            network=VGG,
            gpus=place.gpus,
            policy=policy,
            batch_size=batch,
            paper_samples_per_s=paper,
            samples_per_s=batch / runs.iteration_s(place, VGG, batch, policy),
            fits=runs.iteration(place, VGG, batch, policy).fits,
        )
        for name, (place, rows) in TABLES_OF_SPEED.items()
        for batch, papers in rows.items()
        for policy, paper in zip((NONE, SWAP, STAGGERED), papers, strict=True)
    )


def table_1_cells(runs: ServerRuns) -> tuple[Cell, ...]:
    """Find the largest batches of Table I."""
    place = Place("titan_xp", 1)
    return tuple(
        Cell(
            table="Table I",
            network=network,
            gpus=1,
            policy=policy,
            batch_size=runs.largest(place, network, policy).batch_size,
            paper_samples_per_s=paper,
            samples_per_s=runs.largest_samples_per_s(place, network, policy),
            fits=True,
        )
        for (network, policy), (_, paper) in TABLE_I.items()
    )


def table_1_rows(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    """Return the rows of Table I: batches, then images per second, paper beside replay."""
    rows: list[tuple[str, ...]] = []
    for cell in cells:
        batch_size, samples_per_s = TABLE_I[cell.network, cell.policy]
        batches = f"{batch_size}", f"{cell.batch_size}", f"{cell.batch_size / batch_size:.2f}"
        rows.append((cell.network, cell.policy, *batches, f"{samples_per_s:.2f}", f"{cell.samples_per_s:.2f}"))
    return rows


def throughput_rows(cells: Sequence[Cell], table: str) -> list[tuple[str, ...]]:
    """Return the rows of Table II or III: paper and replay, with the speed of each over that without swap."""
    mine = [cell for cell in cells if cell.table == table]
    rows = []
    for batch in dict.fromkeys(cell.batch_size for cell in mine):
        none, swap, staggered = (cell for cell in mine if cell.batch_size == batch)
        assert swap.paper_samples_per_s is not None
        assert staggered.paper_samples_per_s is not None
        texts = [text for cell in (none, swap, staggered) for text in (_paper(cell), _replay(cell))]
        paper = staggered.paper_samples_per_s / swap.paper_samples_per_s
        rows.append((str(batch), *texts, f"{paper:.3f}", f"{staggered.samples_per_s / swap.samples_per_s:.3f}"))
    return rows


def _paper(cell: Cell) -> str:
    return "out of memory" if cell.paper_samples_per_s is None else f"{cell.paper_samples_per_s:.2f}"


def _replay(cell: Cell) -> str:
    return f"{cell.samples_per_s:.2f}" if cell.fits else f"{cell.samples_per_s:.2f}, does not fit"
