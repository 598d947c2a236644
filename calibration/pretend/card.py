"""Cards of pretended GPUs from hardware profiles: properties of the chip, and rates of kernels for rooflines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from calibration.kernels.described_gpus import GPUS, SM_86, SM_89, SM_90, Board, Limits, properties_of
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.machine import peak_flop_per_s
from vdnnsim.cost.model import EFFICIENCY
from vdnnsim.cost.rate_origins import rate_origins
from vdnnsim.cost.roofline import OVERHEAD
from vdnnsim.errors import ProfileError
from vdnnsim.files.messages import quote
from vdnnsim.hardware.figures import stated_number
from vdnnsim.hardware.server import Figure, Host, Link, Origin, Server
from vdnnsim.units import MIB, ElementType

ASSUMED_CONTEXT_BYTES: Final = 500 * MIB
"""Of a profile without a context; assumed, about what nvidia-smi shows for PyTorch on cards since Ampere."""
_ASSUMED_LAUNCH_S: Final = 5e-6
"""Of a profile whose cost model has no overhead; a launch takes 3 us at best."""

# Technical specifications per compute capability: CUDA C++ programming guides, each of the last release that has it.
# Before 7.0 no block may opt in to more shared memory, and none is reserved.
_SM_35: Final = Limits(350, 48, 2048, 16, 0)
_SM_52: Final = Limits(520, 48, 2048, 32, 0)
_SM_60: Final = Limits(600, 48, 2048, 32, 0)
_SM_61: Final = Limits(610, 48, 2048, 32, 0)
_SM_70: Final = Limits(700, 96, 2048, 32, 0)
_SM_75: Final = Limits(750, 64, 1024, 16, 0)
_SM_100: Final = Limits(1000, 227, 2048, 32)
_SM_120: Final = Limits(1200, 99, 1536, 24)
_SHARED_MEMORY_KIB: Final = {
    350: 48, 520: 96, 600: 64, 610: 96, 700: 96, 750: 64, 800: 164, 860: 100, 890: 100, 900: 228, 1000: 228, 1200: 100
}  # fmt: skip
"""Of a multiprocessor, by compute capability times 100; same source."""
_CERTAINTY: Final = (Origin.MEASURED, Origin.FITTED, Origin.PAPER, Origin.ASSUMED, Origin.DATASHEET)
_UNKNOWN: Final = "unknown"
_Fractions = tuple[dict[ElementType, float], dict[ElementType, float], float]


@dataclass(frozen=True, slots=True)
class _Chip:
    """Properties that a profile does not state: limits, boost clock, memory clock, cache.

    Programs can query them, and no time depends on them but that of `torch.cuda._sleep`, which waits for cycles. They
    are widely quoted from data sheets, without a source each; cuDNN's choice depends on clocks in a few rows of
    hundreds (`calibration.kernels.described_gpus`).

    Attributes:
        names: pattern of the names of its cards, searched in a profile's `gpu.name`.
        memory_clock_mhz: half the transfers of a pin per microsecond.
    """

    names: str
    limits: Limits
    clock_mhz: int
    memory_clock_mhz: int
    cache_kib: int


# K40 boards ship at 745 MHz. Clocks and cache of GH200 are assumed to be those of H100, which has the same chip.
_CHIPS: Final = (
    _Chip(r"K40", _SM_35, 745, 3004, 1536),
    _Chip(r"Titan Black", _SM_35, 980, 3500, 1536),
    _Chip(r"Titan Z", _SM_35, 876, 3500, 1536),
    _Chip(r"Titan X \(Maxwell\)", _SM_52, 1075, 3505, 3 << 10),
    _Chip(r"P100 SXM2", _SM_60, 1480, 715, 4 << 10),
    _Chip(r"P100 PCIe", _SM_60, 1303, 715, 4 << 10),
    _Chip(r"TITAN Xp", _SM_61, 1582, 5705, 3 << 10),
    _Chip(r"GTX 1080 Ti", _SM_61, 1582, 5505, 2816),
    _Chip(r"V100 PCIe", _SM_70, 1380, 877, 6 << 10),
    _Chip(r"TITAN V$", _SM_70, 1455, 850, 4608),
    _Chip(r"TITAN RTX", _SM_75, 1770, 7001, 6 << 10),
    _Chip(r"RTX 2080 Ti", _SM_75, 1545, 7000, 5632),
    _Chip(r"NVIDIA T4$", _SM_75, 1590, 5001, 4 << 10),
    _Chip(r"NVIDIA A40$", SM_86, 1740, 7251, 6 << 10),
    _Chip(r"NVIDIA A10$", SM_86, 1695, 6251, 6 << 10),
    _Chip(r"RTX A6000$", SM_86, 1800, 8001, 6 << 10),
    _Chip(r"RTX A4000$", SM_86, 1560, 7001, 4 << 10),
    _Chip(r"RTX 3060$", SM_86, 1777, 7501, 3 << 10),
    _Chip(r"NVIDIA L4$", SM_89, 2040, 6251, 48 << 10),
    _Chip(r"NVIDIA L40S$", SM_89, 2520, 9001, 96 << 10),
    _Chip(r"RTX 6000 Ada", SM_89, 2505, 10001, 96 << 10),
    _Chip(r"H100 PCIe", SM_90, 1755, 1593, 50 << 10),
    _Chip(r"H100 NVL", SM_90, 1785, 2619, 50 << 10),
    _Chip(r"B200", _SM_100, 1965, 3996, 126 << 10),
    _Chip(r"RTX 5090$", _SM_120, 2407, 14001, 96 << 10),
    _Chip(r"RTX PRO 6000", _SM_120, 2617, 14001, 128 << 10),
    _Chip(r"GH200", SM_90, 1980, 2619, 50 << 10),
)
_KNOWN: Final = (
    (r"A100.*40", "a100_40gb"),
    (r"A100.*80", "a100_80gb"),
    (r"RTX 3090$", "rtx_3090"),
    (r"RTX 4090$", "rtx_4090"),
    (r"(?<!G)H200", "h200"),
    (r"H100.*(SXM|HBM3)", "h100_sxm"),
)
"""Cards with properties in `calibration.kernels.described_gpus`, by a pattern of their names."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU that can be pretended, in SI units.

    Attributes:
        properties: by cuDNN's names.
        shared_memory_bytes: of a multiprocessor.
        flop_per_s: peak of float32.
    """

    profile: str
    properties: Mapping[str, object]
    memory_bytes: int
    context_bytes: int
    context_assumed: bool
    shared_memory_bytes: int
    link: Link
    dram_bytes_per_s: float
    flop_per_s: float
    launch_s: float
    host: Host

    def integer(self, name: str) -> int:
        value = self.properties[name]
        assert isinstance(value, int), name
        return value

    @property
    def name(self) -> str:
        return str(self.properties["deviceName"])

    @property
    def compute_capability(self) -> str:
        """As "8.9"."""
        version = self.integer("deviceVer")
        return f"{version // 100}.{version // 10 % 10}"


def card_of(server: Server) -> Card:
    """Return the card of a machine.

    Raises:
        ProfileError: its chip is unknown, or the profile states no peak of float32.
    """
    peak = server.gpu.flop_per_s.get(ElementType.FLOAT32)
    if peak is None:
        raise ProfileError(f"{server.name}: a card is pretended with its peak of float32, and gpu.peak has none")
    properties = {**_properties(server), "totalGlobalMem": server.gpu.memory_bytes}
    version = properties["deviceVer"]
    assert isinstance(version, int), "cuDNN takes a number"
    return Card(
        profile=server.name,
        properties=properties,
        memory_bytes=server.gpu.memory_bytes,
        context_bytes=server.gpu.context_bytes or ASSUMED_CONTEXT_BYTES,
        context_assumed=not server.gpu.context_bytes,
        shared_memory_bytes=_SHARED_MEMORY_KIB[version] << 10,
        link=server.link,
        dram_bytes_per_s=server.gpu.dram_bytes_per_s,
        flop_per_s=peak,
        launch_s=launch_s(server),
        host=server.host,
    )


def compute_capability(server: Server) -> tuple[int, int] | None:
    """Return the compute capability of a machine's GPU, or None if unknown."""
    found = capability_figure(server)
    # Major and minor number, of which no minor one has had two digits.
    major, minor = divmod(0 if found.text == _UNKNOWN else round(10 * stated_number(found)), 10)
    return (major, minor) if major else None


def capability_figure(server: Server) -> Figure:
    """Return the compute capability of a machine's GPU: as stated, measured, of its name, or of what it extends."""
    path, name = "gpu.compute_capability", server.gpu.name
    if stated := next((each for each in server.figures if each.path == path), None):
        return stated
    if re.fullmatch(r"\d{1,2}\.\d", measured := dict(server.provenance).get("compute_capability", "")):
        return Figure(path, measured, Origin.MEASURED, "of the GPU that was measured")
    try:
        version = _properties(server)["deviceVer"]
    except ProfileError:
        if server.extends is None:
            return Figure(path, _UNKNOWN, Origin.ASSUMED, f"no card called {name} is known; expected it to be stated")
        found = capability_figure(server.extends)
        return replace(found, origin=Origin.ASSUMED, source=f"as {server.extends.name}, which {server.name} extends")
    assert isinstance(version, int), "cuDNN takes a number"
    return Figure(path, f"{version // 100}.{version // 10 % 10}", Origin.DATASHEET, f"of {name}")


def launch_s(server: Server) -> float:
    """Return the least time of a kernel: the overhead of the machine's cost model, of whichever kind."""
    parameters = server.cost_model
    return parameters.get("kernel_overhead_s", parameters.get(OVERHEAD, _ASSUMED_LAUNCH_S))


def _properties(server: Server) -> Mapping[str, object]:
    name = server.gpu.name
    for pattern, known in _KNOWN:
        if re.search(pattern, name):
            return GPUS[known].properties
    for chip in _CHIPS:
        if re.search(chip.names, name):
            board = Board(
                name,
                server.gpu.multiprocessors,
                chip.clock_mhz,
                chip.memory_clock_mhz,
                chip.cache_kib,
                server.gpu.memory_bytes,
            )
            return properties_of(chip.limits, board)
    raise ProfileError(
        f"{server.name}: the chip of {quote(name)} is unknown, and so are its clocks and caches; "
        "calibration/pretend/card.py has one line for each chip"
    )


@dataclass(frozen=True, slots=True)
class OperatorRates:
    """Rates of kernels by element type, and their origin.

    Attributes:
        convolution_flop_per_s, product_flop_per_s: of convolutions, and of all other arithmetic.
        origin: of the least certain of them.
    """

    convolution_flop_per_s: dict[str, float]
    product_flop_per_s: dict[str, float]
    dram_bytes_per_s: float
    kernel_overhead_s: float
    origin: Origin


def operator_rates(server: Server) -> OperatorRates:
    """Return the rates of a server's GPU: its peaks times the fractions of its cost model.

    If the profile states no rate of TF32, it is that of tensor cores in a known data sheet, else that of float32.

    Raises:
        ProfileError: the profile has no rate for float32.
    """
    peaks = {ElementType.FLOAT32: peak_flop_per_s(server, ElementType.FLOAT32), **server.gpu.flop_per_s}
    known = GPUS.get(server.name)
    if known is not None:
        peaks.setdefault(ElementType.TF32, known.tensor_flop_per_s[ElementType.FLOAT32])
    peaks.setdefault(ElementType.TF32, peaks[ElementType.FLOAT32])
    convolution, product, stream = _efficiencies(server) or _fractions(server)
    origins = rate_origins(server)
    return OperatorRates(
        {element_type.value: peak * convolution[element_type] for element_type, peak in peaks.items()},
        {element_type.value: peak * product[element_type] for element_type, peak in peaks.items()},
        server.gpu.dram_bytes_per_s * stream,
        launch_s(server),
        max(
            (origins.get(each, Origin.ASSUMED) for each in _used(server)),
            key=_CERTAINTY.index,
            default=Origin.DATASHEET,
        ),
    )


def _used(server: Server) -> Sequence[str]:
    """Return the rates of the cost model that operators take here; of other models than `efficiency` all."""
    if server.cost_model_kind != EFFICIENCY:
        return list(rate_origins(server))
    unit = "tensor" if efficient_gpu(server).parameters.tensor_flop_fraction else "cuda"
    return f"{unit}_forward_flop_fraction", f"{unit}_flop_fraction", "pointwise_dram_fraction", OVERHEAD


def _efficiencies(server: Server) -> _Fractions | None:
    """Return the fractions of forward convolutions, products and streams by `efficiency`; None by other models."""
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
