"""Times of cuDNN's recurrent layers, whose steps wait for each other, by the rule of `vdnnsim.cost.recurrent`.

A test holds both to the same times. Here each step reads weights from DRAM, as where no L2 keeps them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

KernelTime = Callable[[int, int], float]
"""Returns the seconds of a kernel by FLOPs and bytes, its launch included."""


def recurrent_seconds(given: Mapping[str, Any], kernel_s: KernelTime) -> float:
    """Return the seconds of `_cudnn_rnn` with these arguments, or of its backward, which has an `output_mask`."""
    data, weights, hidden, projected = given["input"], given["weight"], given["hidden_size"], given["proj_size"]
    layers, directions = given["num_layers"], 1 + bool(given["bidirectional"])
    of_weights = "output_mask" in given and given["output_mask"][3]
    features, width = data.shape[-1], data.element_size()
    rows, steps = data.numel() // features, len(given["batch_sizes"]) or data.shape[1 if given["batch_first"] else 0]
    gates, state, batch = weights[0].shape[0], projected or hidden, -(-rows // steps)

    def product_s(count: int, m: int, n: int, k: int) -> float:
        return kernel_s(2 * count * m * n * k, count * width * (m * n + m * k + n * k))

    def chain() -> Iterator[float]:
        for abreast, times in _steps_abreast(steps, layers, directions).items():
            yield times * product_s(abreast, batch, gates, state)
            if projected:
                yield times * product_s(abreast, batch, projected, hidden)
            yield times * kernel_s(0, 2 * abreast * batch * (gates + hidden) * width)

    def whole() -> Iterator[float]:
        for times, inputs in ((1, features), (layers - 1, directions * state)):
            if times:
                yield times * product_s(1, rows, directions * gates, inputs) * (2 if of_weights else 1)
        if of_weights:
            yield layers * product_s(directions, gates, state, rows)
            if projected:
                yield layers * product_s(directions, projected, hidden, rows)

    return sum((*chain(), *whole()), start=0.0)


def _steps_abreast(steps: int, layers: int, directions: int) -> dict[int, int]:
    """Return how many steps of the chain have so many cells abreast."""
    if directions > 1:
        return {directions: steps * layers}
    most = min(steps, layers)
    return {**dict.fromkeys(range(1, most), 2), most: abs(steps - layers) + 1}
