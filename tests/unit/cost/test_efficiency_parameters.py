"""Parameters of efficiencies, and which kind of operator has which."""

import re

import pytest

from tests.unit.cost.test_efficiency_time import VALUES
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters, OperatorKind, operator_kind
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import ProfileError


@pytest.mark.parametrize(
    ("name", "phase", "kind"),
    [
        ("aten.cudnn_batch_norm_backward.default", None, OperatorKind.NORMALIZATION),
        ("aten.native_layer_norm.default", None, OperatorKind.ROW_NORMALIZATION),
        ("aten.native_layer_norm_backward.default", None, OperatorKind.ROW_NORMALIZATION_GRADIENT),
        ("layer_norm", Phase.BACKWARD, OperatorKind.ROW_NORMALIZATION_GRADIENT),
        ("softmax_loss", Phase.FORWARD, OperatorKind.SOFTMAX),
        ("aten._log_softmax.default", None, OperatorKind.ROW_NORMALIZATION),
        ("aten._softmax_backward_data.default", None, OperatorKind.SOFTMAX),
        ("aten.embedding_dense_backward.default", None, OperatorKind.SCATTER),
        ("max_pool", Phase.FORWARD, OperatorKind.POOLING),
        ("max_pool", Phase.BACKWARD_DATA, OperatorKind.POOLING_GRADIENT),
        ("aten.max_pool2d_with_indices_backward.default", None, OperatorKind.POOLING_GRADIENT),
        ("aten._to_copy.default", None, OperatorKind.COPY),
        ("aten.sum.dim_IntList", None, OperatorKind.REDUCTION),
        ("aten._foreach_add_.List", None, OperatorKind.UPDATE),
        ("adam", Phase.UPDATE, OperatorKind.UPDATE),
        ("aten.gelu.default", None, OperatorKind.POINTWISE),
        ("triton::triton_poi_fused_gelu_view_9", None, OperatorKind.POINTWISE),
        ("triton::triton_per_fused_add_native_layer_norm_backward_3", None, OperatorKind.POINTWISE),
        ("triton::triton_red_fused__log_softmax_18", None, OperatorKind.ROW_NORMALIZATION),
    ],
)
def test_kinds_go_by_names(name: str, phase: Phase | None, kind: OperatorKind) -> None:
    assert operator_kind(name, phase) is kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuda_flop_fraction": 1.5}, "cost_model.cuda_flop_fraction: found 1.5, expected a fraction above 0"),
        ({"cuda_flop_fractio": 0.5}, "cost_model: 'cuda_flop_fractio' is not a parameter of efficiencies; did you"),
        ({"pointwise_dram_fraction": None}, "cost_model: lacks pointwise_dram_fraction"),
    ],
)
def test_wrong_parameters_are_refused_and_tensor_cores_may_lack(change: dict[str, float | None], message: str) -> None:
    stated = {name: value for name, value in VALUES.items() if not name.startswith("tensor_")}
    assert EfficiencyParameters.from_mapping("toy", stated).tensor_flop_fraction == 0
    wrong = {name: value for name, value in (stated | change).items() if value is not None}
    with pytest.raises(ProfileError, match=f"^toy: {re.escape(message)}"):
        EfficiencyParameters.from_mapping("toy", wrong)
