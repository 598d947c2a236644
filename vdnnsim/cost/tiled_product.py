"""How long a matrix product takes that multiprocessors compute tile by tile.

The result of rows x columns is cut into tiles of t_r x t_c, padded at its edges, and each multiprocessor computes one
tile at a time. A step along the reduction multiplies t_r t_c elements and loads t_r + t_c of them:

    step   t_r t_c + tile_load_flop (t_r + t_c)           in multiply-adds
    tile   step (depth + tile_start_depth + extra depth)
    waves  max(1, tiles / multiprocessors + idle_tail_waves)
    time   2 waves tile multiprocessors / (arithmetic peak x fraction)

A product with few tiles and a deep reduction may split its depth among up to 64 tiles for each tile of the result. The
library is assumed to take the best of the tile sizes and splits. Tile sizes are those in the names of cuDNN's and
cuBLAS's kernels for Maxwell: 32, 64 or 128 by 64 or 128, and 128 columns only where the depth is split.
"""

from dataclasses import dataclass
from typing import Final

from vdnnsim.cost.machine import Machine

_TILE_ROWS: Final = (32, 64, 128)
_TILE_COLUMNS: Final = (64, 128)
_SPLITS: Final = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class TiledProduct:
    """One matrix product.

    Attributes:
        depth: length of the reduction; not a whole number where part of it is skipped.
        extra_depth: steps in whose time a tile does what is no product.
        splits_depth: whether several tiles may share one reduction.
    """

    rows: int
    columns: int
    depth: float
    extra_depth: float = 0.0
    splits_depth: bool = False


def tiled_product_s(machine: Machine, product: TiledProduct, flop_fraction: float) -> float:
    """Return the seconds of a product whose multiplications run at `flop_fraction` of the arithmetic peak."""
    p = machine.parameters
    splits = _SPLITS if product.splits_depth else (1,)
    start_depth = p.tile_start_depth + product.extra_depth
    fastest = float("inf")
    for tile_rows in _TILE_ROWS:
        rows = -(-product.rows // tile_rows)
        for tile_columns in _TILE_COLUMNS[1:] if product.splits_depth else _TILE_COLUMNS:
            step = tile_rows * tile_columns + p.tile_load_flop * (tile_rows + tile_columns)
            tiles_per_multiprocessor = rows * -(-product.columns // tile_columns) / machine.multiprocessors
            for split in splits:
                waves = max(1.0, split * tiles_per_multiprocessor + p.idle_tail_waves)
                fastest = min(fastest, waves * step * (product.depth / split + start_depth))
    return 2 * fastest * machine.multiprocessors / (machine.flop_per_s * flop_fraction)
