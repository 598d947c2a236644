"""The rates of a GPU for one element type, and the parameters of the model `maxwell`."""

from dataclasses import dataclass

from vdnnsim.cost.parameters import CostParameters
from vdnnsim.cost.roofline_fit import Roofline
from vdnnsim.cost.tiled_product import ProductRates
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU computing in one element type.

    Attributes:
        flop_per_s, dram_bytes_per_s: peak rates, of which the parameters are fractions.
        multiprocessors: streaming multiprocessors, over which the tiles of a kernel are spread.
        element_bytes: bytes of one element of a map or weight.
    """

    parameters: CostParameters
    flop_per_s: float
    dram_bytes_per_s: float
    multiprocessors: int
    element_bytes: int

    @classmethod
    def of_server(
        cls, server: Server, element_type: ElementType, parameters: CostParameters | None = None
    ) -> "Machine":
        """Return the machine that computes in `element_type`, with other parameters than its profile's if given.

        Raises:
            ProfileError: the profile has no arithmetic rate for the type, or not the parameters of this model.
        """
        flop_per_s = peak_flop_per_s(server, element_type)
        return cls(
            parameters=parameters or CostParameters.from_mapping(server.name, server.cost_model),
            flop_per_s=flop_per_s,
            dram_bytes_per_s=server.gpu.dram_bytes_per_s,
            multiprocessors=server.gpu.multiprocessors,
            element_bytes=element_type.nbytes,
        )

    def multiplying_at(self, flop_fraction: float) -> ProductRates:
        """Return the rates of products whose multiplications run at a fraction of the arithmetic peak."""
        p = self.parameters
        return ProductRates(
            flop_per_s=self.flop_per_s * flop_fraction,
            multiprocessors=self.multiprocessors,
            tile_load_flop=p.tile_load_flop,
            tile_start_depth=p.tile_start_depth,
            idle_tail_waves=p.idle_tail_waves,
            sum_bytes_per_s=self.dram_bytes_per_s * p.stream_dram_fraction,
        )


def peak_roofline(server: Server, element_type: ElementType) -> Roofline:
    """Return the roofline of a GPU that reaches its peaks, without overhead."""
    return Roofline(1 / peak_flop_per_s(server, element_type), 1 / server.gpu.dram_bytes_per_s, 0.0)


def peak_flop_per_s(server: Server, element_type: ElementType) -> float:
    if lacking := lacking_peak(server.name, server, element_type):
        raise ProfileError(lacking)
    return server.gpu.flop_per_s[element_type]


def lacking_peak(name: str, server: Server, element_type: ElementType) -> str:
    """Return the message that profile `name` states no peak for an element type; empty if it does."""
    if server.computes_in(element_type):
        return ""
    stated = ", ".join(each.value for each in server.gpu.flop_per_s)
    return f"{name} states no gpu.peak for {element_type.value!r}, expected one of {stated}"
