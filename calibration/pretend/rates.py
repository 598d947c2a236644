"""What kernels reach on a profile's machine, for programs whose kernels no table has: rooflines of its figures."""

from dataclasses import dataclass

from calibration.pretend.card import launch_s
from calibration.workspaces_gpus import GPUS
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.machine import model_origin, peak_flop_per_s
from vdnnsim.cost.model import EFFICIENCY
from vdnnsim.element_type import ElementType
from vdnnsim.hardware.server import Origin, Server

_Fractions = tuple[dict[ElementType, float], dict[ElementType, float], float]


@dataclass(frozen=True, slots=True)
class OperatorRates:
    """Rates by element type, and where they are from.

    Attributes:
        convolution_flop_per_s, product_flop_per_s: of convolutions, and of all other arithmetic.
        dram_bytes_per_s: of device memory.
        kernel_overhead_s: of each kernel.
        origin: of the least certain of them.
    """

    convolution_flop_per_s: dict[str, float]
    product_flop_per_s: dict[str, float]
    dram_bytes_per_s: float
    kernel_overhead_s: float
    origin: Origin


def operator_rates(server: Server) -> OperatorRates:
    """Return the rates of a server's GPU: the peaks, as far as the parameters of its cost model reach them.

    A profile that states no rate of TF32 has that of its tensor cores where a data sheet of them is known, else that of
    float32.

    Raises:
        ProfileError: the profile has no rate for float32.
    """
    peaks = {ElementType.FLOAT32: peak_flop_per_s(server, ElementType.FLOAT32), **server.gpu.flop_per_s}
    known = GPUS.get(server.name)
    if known is not None:
        peaks.setdefault(ElementType.TF32, known.tensor_flop_per_s[ElementType.FLOAT32])
    peaks.setdefault(ElementType.TF32, peaks[ElementType.FLOAT32])
    convolution, product, stream = _efficiencies(server) or _fractions(server)
    return OperatorRates(
        {element_type.value: peak * convolution[element_type] for element_type, peak in peaks.items()},
        {element_type.value: peak * product[element_type] for element_type, peak in peaks.items()},
        server.gpu.dram_bytes_per_s * stream,
        launch_s(server),
        model_origin(server),
    )


def _efficiencies(server: Server) -> _Fractions | None:
    """Return what convolutions forward, products and streams reach by the model of modern GPUs; None by another."""
    if server.cost_model_kind != EFFICIENCY:
        return None
    gpu = efficient_gpu(server)
    p, on_tensor_cores = gpu.parameters, {each: gpu.has_tensor_cores(each) for each in ElementType}
    return (
        {
            each: p.tensor_forward_flop_fraction if tensor else p.cuda_forward_flop_fraction
            for each, tensor in on_tensor_cores.items()
        },
        {each: p.tensor_flop_fraction if tensor else p.cuda_flop_fraction for each, tensor in on_tensor_cores.items()},
        p.pointwise_dram_fraction,
    )


def _fractions(server: Server) -> _Fractions:
    values = server.cost_model
    convolution = values.get(
        "conv_flop_fraction", values.get("implicit_forward_flop_fraction", values.get("flop_fraction", 1.0))
    )
    product = values.get("product_flop_fraction", values.get("flop_fraction", 1.0))
    stream = values.get("stream_dram_fraction", values.get("dram_fraction", 1.0))
    return dict.fromkeys(ElementType, convolution), dict.fromkeys(ElementType, product), stream
