"""Origins of kernel times: how many of the seconds of a kernel rest on rates of each origin.

Where all rates of a cost model are slower by a factor, so is every kernel. So by Euler's theorem on homogeneous
functions the seconds that rest on the rates of one origin are what a kernel takes longer where these alone are slower,
over the step by which they are. That is exact unless another rate becomes the limit within the step; what a power limit
adds counts with the rates of the first origin.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from vdnnsim.cost.parameters import RATES
from vdnnsim.cost.table import ONLY, KernelCost
from vdnnsim.hardware.server import Origin, Server

_STEP: Final = 2**-12
_DIGITS: Final = 9
"""Of shares, beyond the rounding errors of differences."""
_OVERHEAD: Final = "_s"

Model = TypeVar("Model")


def rate_origins(server: Server) -> dict[str, Origin]:
    """Return the origin of each rate and overhead of a server's cost model; what was measured counts as fitted.

    Where none was fitted and every rate is the whole of its peak, they are those of the datasheet.
    """
    rates = [key for key in server.cost_model if _is_rate(key) or key.endswith(_OVERHEAD)]
    stated = {each.path.removeprefix("cost_model."): each.origin for each in server.figures}
    origins = {key: stated.get(key, Origin.ASSUMED) for key in rates}
    origins = {key: Origin.FITTED if origin is Origin.MEASURED else origin for key, origin in origins.items()}
    # Fractions of algorithms that the library lacks are 0.
    fractions = {value for key, value in server.cost_model.items() if _is_rate(key)} - {0}
    is_of_peaks = Origin.FITTED not in origins.values() and fractions <= {1}
    return dict.fromkeys(rates, Origin.DATASHEET) if is_of_peaks else origins


def model_origin(server: Server) -> Origin:
    """Return the origin of most rates of a server's cost model; of the datasheet where there are none."""
    counted = Counter(rate_origins(server).values())
    return max(counted, key=lambda each: counted[each], default=Origin.DATASHEET)


class RatedModel(Generic[Model]):
    """A model of kernel times with the rates of a server, and again with those of each origin slower.

    Args:
        server: with the rates in its cost model.
        model: makes the model from them.
    """

    def __init__(self, server: Server, model: Callable[[Mapping[str, float]], Model]) -> None:
        values, origins = server.cost_model, rate_origins(server)
        self.model = model(values)
        present = [each for each in Origin if each in origins.values()] or [Origin.DATASHEET]
        self._first = present[0]
        self._slower = {each: model(_slower(values, origins, each)) for each in present[1:]}

    def cost(
        self, seconds_by: Callable[[Model], float], dram_bytes: int, algorithm: str = ONLY, workspace_bytes: int = 0
    ) -> KernelCost:
        """Return the cost of a kernel whose time is a function of the model."""
        seconds = seconds_by(self.model)
        shares = {each: round((seconds_by(slow) / seconds - 1) / _STEP, _DIGITS) for each, slow in self._slower.items()}
        shares = {self._first: round(1 - sum(shares.values()), _DIGITS), **shares}
        found = {origin: share for origin, share in shares.items() if share > 0}
        return KernelCost(
            algorithm,
            seconds,
            workspace_bytes,
            max(found, key=lambda each: found[each]),
            dram_bytes=dram_bytes,
            shares=tuple(found.items()) if len(found) > 1 else (),
        )


def _is_rate(key: str) -> bool:
    return f"_{key}".endswith(RATES)


def _slower(values: Mapping[str, float], origins: Mapping[str, Origin], origin: Origin) -> dict[str, float]:
    """Return parameters whose rates of one origin are slower by a step; loads of tiles are in the time of a rate."""
    factors = {key: 1 + _STEP for key, each in origins.items() if each is origin}
    return {
        key: value * factors.get(key, 1) if key.endswith(_OVERHEAD) else value / factors.get(key, 1)
        for key, value in values.items()
    }
