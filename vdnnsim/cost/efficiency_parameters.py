"""The parameters of the model of modern GPUs: fractions of peaks by kind of kernel, launch and start costs.

A hardware profile states them in its section `cost_model` with `kind: efficiency`. Fractions are of the peak rates in
its section `gpu`; how they make seconds stands in `vdnnsim.cost.efficiency_time`. Kernels of a kind go through memory
in the same way, so they reach the same fraction of its bandwidth. The kind goes by the name of an operator, of our
networks (`batch_norm`) or of PyTorch (`aten.mm.default`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from vdnnsim.cost.fused_attention import AttentionKernel
from vdnnsim.cost.parameters import check_parameters
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import ElementType

_WITHOUT_ROWS: Final = {
    "attention_gradient_flop_fraction": "attention_flop_fraction",
    "attention_score_width": "",
    "unsized_flop_fraction": "",
    "flash_flop_fraction": "attention_flop_fraction",
    "flash_gradient_flop_fraction": "attention_gradient_flop_fraction",
    "efficient_flop_fraction": "attention_flop_fraction",
    "efficient_float32_flop_fraction": "efficient_flop_fraction",
    "row_normalization_gradient_dram_fraction": "row_normalization_dram_fraction",
    "softmax_dram_fraction": "row_normalization_dram_fraction",
    "scatter_dram_fraction": "pointwise_dram_fraction",
    "tensor_tf32_weights_flop_fraction": "tensor_weights_flop_fraction",
    "cuda_cores_per_lane": "",
    "mma_sync_share": "",
    "cudnn": "",
}
"""Parameters that a profile may leave out, and what then stands in for them."""
_OF_STAND_IN: Final = {"row_normalization_gradient_dram_fraction": 3 / 5}
"""Part of what stands in: one kernel reads X and dY and writes dX, another reads both again for the gradients of weight
and bias (aten/src/ATen/native/cuda/layer_norm_kernel.cu), and each counts once. An H100 was measured at 0.55."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyParameters:
    """Parameters of a GPU beyond its datasheet.

    Those of tensor cores are 0 where the GPU has none: float16 is then computed by CUDA cores at its peak.

    Attributes:
        launch_overhead_s: seconds of any kernel before and after its work.
        cuda_flop_fraction, tensor_flop_fraction: fraction of the peak of CUDA cores and of tensor cores that the
            multiplications of large matrix products sustain; loads and starts of tiles are not counted in.
        cuda_forward_flop_fraction and so on: the same of convolutions, forward, data gradient, weight gradient.
        tensor_tf32_weights_flop_fraction: the same of weight gradients in TF32, the reduction of which runs along
            neither operand's rows: tensor cores of Hopper take only operands of 16 bits so (wgmma, PTX ISA).
        cuda_load_flop, tensor_load_flop: multiply-adds in whose time one element of an operand is loaded into a tile.
        cuda_start_depth, tensor_start_depth: steps along the reduction in whose time a tile starts and stores.
        cuda_cores_per_lane: CUDA cores to a lane of the load/store units; 0 where rows of any length count as aligned.
        mma_sync_share: what mma.sync reaches of the tensor cores' rate, for products of rows of odd lengths.
        attention_flop_fraction: what fused attention by the kernel that PyTorch tries first on the card reaches of the
            rate of large products.
        attention_gradient_flop_fraction: the same of their backward.
        flash_flop_fraction, flash_gradient_flop_fraction: the same of flash attention where another kernel is first.
        efficient_flop_fraction, efficient_float32_flop_fraction: the same of memory-efficient attention in 16 bits and
            in float32, forward and backward; in float32 it multiplies three times in TF32 from Ampere on
            (`OpMultiplyAddFastF32` in ATen/native/transformers/cuda/mem_eff_attention/gemm_kernel_utils.h).
        attention_score_width: the width of a head whose products take as long as the softmax of its scores.
        unsized_flop_fraction: what other products of which the sizes are not known reach, as dilated convolutions; 0
            where that is what attention reaches.
        depthwise_flop_fraction, depthwise_weights_flop_fraction: fraction of the peak of CUDA cores in float32 that
            depthwise convolutions sustain, forward and data gradient, and weight gradient; those in groups of several
            channels, too, where tensor cores do not compute them.
        depthwise_strided_flop_fraction: the same of their data gradients with a stride, channels last, before cuDNN 9.
        product_dram_fraction: fraction of DRAM bandwidth at which operands of products and convolutions move.
        winograd_dram_fraction: the same of Winograd's transforms.
        pointwise_dram_fraction and so on: the same of each `OperatorKind`; copies are casts and transpositions, too.
        cudnn: major version of cuDNN by which kernels are chosen, that of the rows that told them.

    A profile whose rows do not tell them leaves out the score width, and what other attention, gradients, softmax and
    scatters reach, which then is what attention, forward, normalizations of rows and pointwise kernels do; but for
    gradients of normalizations of rows, which then reach three fifths of forward.
    """

    launch_overhead_s: float
    cuda_flop_fraction: float
    cuda_forward_flop_fraction: float
    cuda_data_flop_fraction: float
    cuda_weights_flop_fraction: float
    cuda_winograd_flop_fraction: float
    cuda_load_flop: float
    cuda_start_depth: float
    tensor_flop_fraction: float = 0.0
    tensor_forward_flop_fraction: float = 0.0
    tensor_data_flop_fraction: float = 0.0
    tensor_weights_flop_fraction: float = 0.0
    tensor_tf32_weights_flop_fraction: float = 0.0
    tensor_load_flop: float = 0.0
    tensor_start_depth: float = 0.0
    cuda_cores_per_lane: float = 0.0
    mma_sync_share: float = 1.0
    attention_flop_fraction: float
    attention_gradient_flop_fraction: float
    attention_score_width: float = 0.0
    unsized_flop_fraction: float = 0.0
    flash_flop_fraction: float
    flash_gradient_flop_fraction: float
    efficient_flop_fraction: float
    efficient_float32_flop_fraction: float
    depthwise_flop_fraction: float
    depthwise_weights_flop_fraction: float
    depthwise_strided_flop_fraction: float
    product_dram_fraction: float
    winograd_dram_fraction: float
    pointwise_dram_fraction: float
    copy_dram_fraction: float
    reduction_dram_fraction: float
    normalization_dram_fraction: float
    normalization_last_dram_fraction: float
    row_normalization_dram_fraction: float
    row_normalization_gradient_dram_fraction: float
    softmax_dram_fraction: float
    scatter_dram_fraction: float
    pooling_dram_fraction: float
    pooling_gradient_dram_fraction: float
    update_dram_fraction: float
    cudnn: float = 8.0

    @classmethod
    def from_mapping(cls, name: str, values: Mapping[str, float]) -> "EfficiencyParameters":
        """Return the parameters of the profile called `name` from its `cost_model`."""
        known = [field.name for field in fields(cls)]
        has_tensor_cores = any(key.startswith("tensor_") for key in values)
        optional = {*_WITHOUT_ROWS, *(key for key in known if key.startswith("tensor_") and not has_tensor_cores)}
        required = [key for key in known if key not in optional]
        check_parameters(name, values, known, required, "a parameter of efficiencies")
        stated = dict(values)
        for key, other in _WITHOUT_ROWS.items():
            if other in stated:
                stated.setdefault(key, stated[other] * _OF_STAND_IN.get(key, 1))
        return cls(**stated)

    def work_fraction(
        self, kernel: AttentionKernel, element_type: ElementType, *, is_gradient: bool, is_sized: bool
    ) -> float:
        """Return what a kernel of attention, or products of which no sizes are known, reach of large products."""
        if self.unsized_flop_fraction and not is_sized:
            return self.unsized_flop_fraction
        match kernel:
            case AttentionKernel.FIRST:
                return self.attention_gradient_flop_fraction if is_gradient else self.attention_flop_fraction
            case AttentionKernel.FLASH:
                return self.flash_gradient_flop_fraction if is_gradient else self.flash_flop_fraction
            case AttentionKernel.EFFICIENT:
                is_wide = element_type.nbytes >= ElementType.FLOAT32.nbytes
                return self.efficient_float32_flop_fraction if is_wide else self.efficient_flop_fraction


class OperatorKind(Enum):
    """Kinds of kernels, by how they go through memory; one for each `..._dram_fraction` of the cost model."""

    POINTWISE = "pointwise"
    COPY = "copy"
    REDUCTION = "reduction"
    NORMALIZATION = "normalization"
    ROW_NORMALIZATION = "row_normalization"
    ROW_NORMALIZATION_GRADIENT = "row_normalization_gradient"
    SOFTMAX = "softmax"
    SCATTER = "scatter"
    POOLING = "pooling"
    POOLING_GRADIENT = "pooling_gradient"
    UPDATE = "update"


_BY_WORD: Final = (
    ("batch_norm", OperatorKind.NORMALIZATION),
    ("instance_norm", OperatorKind.NORMALIZATION),
    ("_norm", OperatorKind.ROW_NORMALIZATION),
    ("log_softmax", OperatorKind.ROW_NORMALIZATION),
    ("softmax", OperatorKind.SOFTMAX),
    ("pool", OperatorKind.POOLING),
    ("_foreach_", OperatorKind.UPDATE),
    ("_fused_", OperatorKind.UPDATE),
)
"""Parts of names; the first match counts."""

_BY_NAME: Final = {
    **dict.fromkeys(
        ("cast", "concat", "class_token", "_to_copy", "clone", "copy_", "cat", "stack", "constant_pad_nd"),
        OperatorKind.COPY,
    ),
    **dict.fromkeys(("sum", "mean", "var", "var_mean", "norm", "amax", "max", "argmax"), OperatorKind.REDUCTION),
    "embedding_dense_backward": OperatorKind.SCATTER,
    **dict.fromkeys(("sgd", "momentum", "adam", "fused_adam_32bit", "fused_adam_8bit"), OperatorKind.UPDATE),
}

_INDUCTOR: Final = "triton::"
"""Before the names of kernels that `torch.compile` makes, which say what they fuse: triton_per_fused_add_layer_norm."""

_GRADIENTS: Final = {
    OperatorKind.POOLING: OperatorKind.POOLING_GRADIENT,
    OperatorKind.ROW_NORMALIZATION: OperatorKind.ROW_NORMALIZATION_GRADIENT,
}
"""Kinds whose backward goes through memory otherwise; that of a normalization of rows reads X and dY twice."""


def operator_kind(name: str, phase: Phase | None = None) -> OperatorKind:
    """Return the kind of a kernel that is no product, by the name of an operator, an optimizer or a PyTorch operator.

    Others are pointwise, and so are kernels that Inductor makes, except softmaxes, which go over their rows twice.
    Without a phase, the name tells whether it is backward.
    """
    word = name.removeprefix("aten.").removeprefix("vdnnsim.").partition(".")[0]
    if word.startswith(_INDUCTOR) and "softmax" not in word:
        return OperatorKind.POINTWISE
    found = _BY_NAME.get(word) or next((kind for part, kind in _BY_WORD if part in word), OperatorKind.POINTWISE)
    is_backward = word.endswith("_backward") or (phase is not None and phase.is_backward)
    return _GRADIENTS.get(found, found) if is_backward else found
