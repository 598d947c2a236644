"""What the model of kernel times sees of a server: the rates of its GPU for one element type, and the parameters."""

from dataclasses import dataclass

from vdnnsim.cost.parameters import CostParameters
from vdnnsim.element_type import ElementType
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server


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
    def of_server(cls, server: Server, element_type: ElementType) -> "Machine":
        """Return the machine that computes in `element_type`.

        Raises:
            ProfileError: the profile has no arithmetic rate for the type, or not the parameters of this model.
        """
        rates = server.gpu.flop_per_s
        if element_type not in rates:
            known = ", ".join(sorted(known.value for known in rates))
            raise ProfileError(f"{server.name}: gpu.peak: lacks {element_type.value}, has {known}")
        return cls(
            parameters=CostParameters.from_mapping(server.name, server.cost_model),
            flop_per_s=rates[element_type],
            dram_bytes_per_s=server.gpu.dram_bytes_per_s,
            multiprocessors=server.gpu.multiprocessors,
            element_bytes=element_type.nbytes,
        )
