"""Seconds of a matrix product that multiprocessors compute tile by tile.

The result of rows x columns is cut into tiles of t_r x t_c, padded at its edges, and each multiprocessor computes one
tile at a time. A step along the reduction multiplies t_r t_c elements and loads t_r + t_c of them:

    step   t_r t_c + tile_load_flop (t_r + t_c)           in multiply-adds
    tile   step (depth + tile_start_depth + extra depth)
    waves  max(1, tiles / multiprocessors + idle_tail_waves)
    time   2 waves tile multiprocessors / (arithmetic peak x fraction)

A product with few tiles and a deep reduction may split its depth among up to 64 tiles for each tile of the result. Each
of the splits then adds its part to the result in DRAM, a read and a write of it at stream_dram_fraction of bandwidth.

The library is assumed to take the best of the tile sizes and splits. Tile sizes are those in the names of cuDNN's and
cuBLAS's kernels for Maxwell: 32, 64 or 128 by 64 or 128, and 128 columns only where the depth is split. A product may
have fewer sizes to choose from.

Known limitations: waves are a smooth function of the number of tiles, a multiprocessor runs one tile at a time, and the
library's heuristic is taken to be right.
"""

from dataclasses import dataclass
from typing import Final

TILE_ROWS: Final = (32, 64, 128)
_TILE_COLUMNS: Final = (64, 128)
_SPLITS: Final = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class ProductRates:
    """The rates of a machine for products.

    Attributes:
        flop_per_s: rate that the multiplications sustain.
        tile_load_flop, tile_start_depth, idle_tail_waves: as above.
        sum_bytes_per_s: rate of DRAM at which splits add their parts to the result.
    """

    flop_per_s: float
    multiprocessors: int
    tile_load_flop: float
    tile_start_depth: float
    idle_tail_waves: float
    sum_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class TiledProduct:
    """One matrix product.

    Attributes:
        depth: length of the reduction; not a whole number where part of it is skipped.
        extra_depth: steps in whose time a tile does other work.
        splits_depth: whether several tiles may share one reduction.
        summed_bytes: bytes of the result, where every split adds its part to it.
        tile_rows: the sizes of tiles along the rows to choose from.
        count: how many products of this shape one kernel computes side by side.
        row_elements: greatest common divisor of the lengths of its operands' rows in memory; 0 if nothing is known.
    """

    rows: int
    columns: int
    depth: float
    extra_depth: float = 0.0
    splits_depth: bool = False
    summed_bytes: int = 0
    tile_rows: tuple[int, ...] = TILE_ROWS
    count: int = 1
    row_elements: int = 0

    @property
    def flop(self) -> float:
        """Its FLOPs, without padding."""
        return 2 * self.count * self.rows * self.columns * self.depth


def tiled_product_s(rates: ProductRates, product: TiledProduct) -> float:
    splits = _SPLITS if product.splits_depth else (1,)
    start_depth = rates.tile_start_depth + product.extra_depth
    seconds_per_step = 2 * rates.multiprocessors / rates.flop_per_s
    sum_s = 2 * product.summed_bytes / rates.sum_bytes_per_s
    fastest_s = float("inf")
    for tile_rows in product.tile_rows:
        rows = -(-product.rows // tile_rows) * product.count
        for tile_columns in _TILE_COLUMNS[1:] if product.splits_depth else _TILE_COLUMNS:
            step = tile_rows * tile_columns + rates.tile_load_flop * (tile_rows + tile_columns)
            tiles_per_multiprocessor = rows * -(-product.columns // tile_columns) / rates.multiprocessors
            for split in splits:
                waves = max(1.0, split * tiles_per_multiprocessor + rates.idle_tail_waves)
                product_s = seconds_per_step * waves * step * (product.depth / split + start_depth)
                fastest_s = min(fastest_s, product_s + split * sum_s)
    return fastest_s
