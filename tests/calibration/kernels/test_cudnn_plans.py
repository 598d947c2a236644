import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.kernels import cudnn_plans
from calibration.kernels.cudnn_plans import (
    DOWN_CONVERT_NOTE,
    NONDETERMINISTIC_NOTE,
    TENSOR_CORE_NOTE,
    ConvolutionPlan,
    ConvolutionProblem,
    distinct,
    engine_of,
    family_of,
    is_admitted,
    is_engine,
    result_begin_bytes,
    workspace_beside_result_bytes,
)
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import ElementType

CONV2_1 = ConvolutionShape(n=64, c=64, k=128, input_size=(112, 112), kernel=(3, 3), padding=(1, 1))
"""Of VGG-16 at batch 64: X is 205,520,896 B, Y twice that, W 294,912 B in float32."""


def problem(
    phase: Phase = Phase.FORWARD, element_type: ElementType = ElementType.FLOAT32, *, tf32: bool = False
) -> ConvolutionProblem:
    return ConvolutionProblem(CONV2_1, phase, element_type, tf32=tf32)


def plan(workspace_bytes: int, *notes: str, name: str = "eng1") -> ConvolutionPlan:
    return ConvolutionPlan(name, workspace_bytes, frozenset(notes))


def test_operands_are_n_c_h_w_with_the_strides_of_their_layout() -> None:
    """A pixel to the right is one element on where channels lie first, C = 64 or K = 128 elements where they lie last.

    The output keeps 112 x 112 pixels: 112 + 2 - 3 + 1.
    """
    first = problem()
    assert first.map_operand.dimensions == (64, 64, 112, 112)
    assert first.map_operand.strides == (64 * 112 * 112, 112 * 112, 112, 1)
    assert first.filter_operand.dimensions == (128, 64, 3, 3)
    assert first.filter_operand.strides == (576, 9, 3, 1)
    last = ConvolutionProblem(CONV2_1, Phase.FORWARD, ElementType.FLOAT32, channels_last=True)
    assert last.output_operand.dimensions == (64, 128, 112, 112)
    assert last.output_operand.strides == (128 * 112 * 112, 1, 112 * 128, 128)
    assert last.filter_operand.strides == (576, 1, 3 * 64, 64)


@pytest.mark.parametrize(
    ("phase", "names"),
    [
        (Phase.FORWARD, ("X", "W", "Y")),
        (Phase.BACKWARD_DATA, ("dX", "W", "dY")),
        (Phase.BACKWARD_WEIGHTS, ("X", "dW", "dY")),
    ],
)
def test_operands_are_called_by_what_they_are_in_a_phase(phase: Phase, names: tuple[str, str, str]) -> None:
    asked = problem(phase)
    assert (asked.map_operand.name, asked.filter_operand.name, asked.output_operand.name) == names


@pytest.mark.parametrize(
    ("workspace_bytes", "notes", "family"),
    [
        (0, (), cudnn_plans.IMPLICIT_GEMM),
        # One index of 4 bytes for each of the C R S = 576 elements of a filter.
        (2_304, (), cudnn_plans.PRECOMPUTED_GEMM),
        # 2 K R S = 2,304 indices are the most; one byte more is something else.
        (9_216, (), cudnn_plans.PRECOMPUTED_GEMM),
        (9_217, (), cudnn_plans.UNKNOWN),
        # N C R S P Q = 64 x 576 x 12,544 elements of 4 bytes.
        (1_849_688_064, (), cudnn_plans.EXPLICIT_GEMM),
        # The columns and Y once more: 1,849,688,064 + 411,041,792.
        (2_260_729_856, (), cudnn_plans.EXPLICIT_GEMM),
        (205_815_824, (TENSOR_CORE_NOTE,), cudnn_plans.TENSOR_CORES_TRANSFORM),
        (1_849_688_064, (TENSOR_CORE_NOTE,), cudnn_plans.TENSOR_CORES_TRANSFORM),
        (205_520_896, (), cudnn_plans.IMPLICIT_GEMM_TRANSFORM),
        (205_520_895, (), cudnn_plans.UNKNOWN),
        (205_520_895, (TENSOR_CORE_NOTE,), cudnn_plans.TENSOR_CORES),
        (0, (TENSOR_CORE_NOTE,), cudnn_plans.TENSOR_CORES),
        (616_857_616, ("FFT",), cudnn_plans.FFT),
        (616_857_616, ("WINOGRAD", "WINOGRAD_TILE_4x4", TENSOR_CORE_NOTE), cudnn_plans.WINOGRAD),
        (0, ("WINOGRAD_TILE_4x4",), cudnn_plans.WINOGRAD),
    ],
)
def test_the_family_follows_from_notes_and_workspace(workspace_bytes: int, notes: tuple[str, ...], family: str) -> None:
    assert family_of(plan(workspace_bytes, *notes), problem()) == family


def test_copies_of_operands_are_not_the_columns_of_a_1x1_filter_which_are_x() -> None:
    """C = 4, K = 8, 2 x 2 pixels, one image: X, and so its columns, 64 B; Y 128 B, W 128 B."""
    pointwise = ConvolutionProblem(ConvolutionShape(1, 4, 8, (2, 2), (1, 1)), Phase.FORWARD, ElementType.FLOAT32)
    assert family_of(plan(64), pointwise) == cudnn_plans.EXPLICIT_GEMM
    assert family_of(plan(64 + 128), pointwise) == cudnn_plans.IMPLICIT_GEMM_TRANSFORM
    # Names of engines are recognized.
    assert engine_of("eng41_k2=0_k12=-1_k13=2") == 41
    assert engine_of("eng0") == 0
    assert is_engine("eng0")
    assert not is_engine("frost_conv_k2=1")
    assert not is_engine("eng")


@pytest.mark.parametrize(
    ("notes", "float32", "tf32", "float16"),
    [
        ((), True, True, True),
        ((TENSOR_CORE_NOTE,), False, True, True),
        ((TENSOR_CORE_NOTE, DOWN_CONVERT_NOTE), False, False, True),
        ((NONDETERMINISTIC_NOTE,), False, False, False),
        (("REDUCED_PRECISION_REDUCTION", "STRICT_NAN_PROP"), True, True, True),
    ],
)
def test_plans_count_as_in_pytorch(notes: tuple[str, ...], float32: bool, tf32: bool, float16: bool) -> None:  # noqa: FBT001
    found = frozenset(notes)
    assert is_admitted(found, problem()) is float32
    assert is_admitted(found, problem(tf32=True)) is tf32
    assert is_admitted(found, problem(element_type=ElementType.FLOAT16)) is float16


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_the_first_plan_of_each_engine_and_workspace_stands_for_the_others(pairs: list[tuple[int, int]]) -> None:
    offered = [plan(size, name=f"eng{engine}_k2={knob}") for knob, (engine, size) in enumerate(pairs)]
    assert list(distinct(offered)) == [offered[pairs.index(pair)] for pair in dict.fromkeys(pairs)]


@given(st.integers(0, 5_000))
def test_a_result_beside_the_workspace_begins_aligned_behind_it(own_bytes: int) -> None:
    """The whole is the aligned begin and dX, 64 x 64 x 112 x 112 elements of 4 bytes."""
    asked = problem(Phase.BACKWARD_DATA)
    begin = result_begin_bytes(plan(own_bytes))
    assert begin % 256 == 0
    assert 0 <= begin - own_bytes < 256
    assert workspace_beside_result_bytes(plan(own_bytes), asked) == begin + 205_520_896
