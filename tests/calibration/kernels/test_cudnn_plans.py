"""Plans of cuDNN, and the graphs that they are found for."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.kernels import cudnn_plans
from calibration.kernels.cudnn_graphs import PlanFinder, Target, described_device, frontend
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
from calibration.kernels.described_gpus import H200
from tests.calibration.kernels.frontend_double import Behavior, Engine, Frontend, Note
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import DeviceError
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


"""Of VGG-16 at batch 64."""
PROBLEM = ConvolutionProblem(CONV2_1, Phase.FORWARD, ElementType.FLOAT32)
TF32 = replace(PROBLEM, tf32=True)

ENGINES = {
    0: Engine(),
    1: Engine(frozenset({Note.TENSOR_CORE}), workspace_bytes=100, behaviors=(Behavior.RUNTIME_COMPILATION,)),
    2: Engine(frozenset({Note.TENSOR_CORE, Note.DOWN_CONVERT_INPUTS})),
    3: Engine(frozenset({Note.NONDETERMINISTIC})),
    4: Engine(workspace_bytes=7),
    5: Engine(works=False),
}
HEURISTICS = ["eng1_k2=1", "eng1_k2=4", "frost_conv", "eng0", "eng1_k2=1", "eng5_k2=1", "eng2_k2=0"]


def why_not() -> str:
    """Return why cuDNN cannot be asked; empty where it can. It takes libraries of 1.2 GB and no GPU."""
    try:
        frontend()
    except DeviceError as failure:
        return str(failure)
    return ""


needs_cudnn = pytest.mark.skipif(bool(WHY_NOT := why_not()), reason=WHY_NOT)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Frontend:
    double = Frontend(ENGINES, HEURISTICS)
    monkeypatch.setitem(sys.modules, "cudnn", double)
    return double


@pytest.mark.usefixtures("double")
def test_plans_are_those_of_the_heuristics_then_the_engines_that_they_leave_out() -> None:
    """With TF32 engines 0, 1 and 4 count: 2 rounds its inputs, 3 is not deterministic, 5 cannot be built.

    Engine 1 wants 101 B with one knob and 104 B with another, so it is there twice; it is not asked for by number, as
    4 is, for heuristics list it. The kernel `frost_conv` is none of cuDNN's engines.
    """
    offer = PlanFinder(Target(properties="H200")).find(TF32)

    assert [(plan.name, plan.workspace_bytes) for plan in offer.plans] == [
        ("eng1_k2=1", 101),
        ("eng1_k2=4", 104),
        ("eng0", 0),
        ("eng4", 7),
    ]
    assert offer.left_out == ("eng5_k2=1",)
    assert offer.graph.plans[offer.positions["eng1_k2=4"]] == "eng1_k2=4"
    assert offer.plans[0].numerical_notes == {"TENSOR_CORE"}
    assert offer.plans[0].behavior_notes == ("RUNTIME_COMPILATION",)
    assert offer.plans[2].numerical_notes == frozenset()


@pytest.mark.usefixtures("double")
def test_without_tf32_tensor_cores_do_not_count() -> None:
    offer = PlanFinder(Target(properties="H200")).find(PROBLEM)
    assert [plan.name for plan in offer.plans] == ["eng0", "eng4"]


def test_engines_are_asked_for_their_notes_once(double: Frontend) -> None:
    finder = PlanFinder(Target(handle=7))
    finder.find(replace(PROBLEM, shape=replace(CONV2_1, n=1)))
    asked = len(double.graphs)
    finder.find(PROBLEM)
    # One graph of the plans themselves, one to see that engine 5 still cannot be built.
    assert len(double.graphs) == asked + 2
    assert {tuple(graph.device.items()) for graph in double.graphs} == {(("handle", 7),)}


@pytest.mark.parametrize(
    ("phase", "operation", "result", "given"),
    [
        (Phase.FORWARD, "fprop", "Y", {"image": "X", "weight": "W"}),
        (Phase.BACKWARD_DATA, "dgrad", "dX", {"loss": "dY", "filter": "W"}),
        (Phase.BACKWARD_WEIGHTS, "wgrad", "dW", {"image": "X", "loss": "dY"}),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.usefixtures("double")
def test_a_graph_states_shape_and_strides_of_every_operand(
    phase: Phase, operation: str, result: str, given: dict[str, str], *, channels_last: bool
) -> None:
    """An output whose strides are not set would be taken for N, H, W, C and want a workspace to convert it."""
    problem = replace(PROBLEM, phase=phase, channels_last=channels_last)

    offer = PlanFinder(Target(properties="H200")).find(problem)

    asked = offer.graph.asked
    assert asked["operation"] == operation
    assert (asked["padding"], asked["stride"], asked["dilation"]) == ([1, 1], [1, 1], [1, 1])
    assert {key: asked[key].name for key in given} == given
    for operand in (problem.map_operand, problem.filter_operand, problem.output_operand):
        tensor = offer.operands[operand.name]
        assert (tuple(tensor.dim), tuple(tensor.stride)) == (operand.dimensions, operand.strides)
    assert offer.operands[result].is_output


def test_unsupported_graph_has_no_plan(double: Frontend) -> None:
    double.heuristics = []
    assert PlanFinder(Target(properties="H200")).find(PROBLEM).plans == ()


def test_missing_frontend_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(DeviceError, match="pip install nvidia-cudnn-frontend"):
        frontend()


@needs_cudnn
def test_cudnn_describes_an_absent_h200() -> None:
    """Forward of conv2_1: 205,815,824 B for copies of X and W with TF32, the columns 1,849,688,064 B without it."""
    finder = PlanFinder(Target(properties=described_device(H200.properties)))
    with_tf32 = {plan.workspace_bytes: family_of(plan, TF32) for plan in finder.find(TF32).plans}
    without = {plan.workspace_bytes: family_of(plan, PROBLEM) for plan in finder.find(PROBLEM).plans}
    assert with_tf32[205_815_824] == "tensor cores with layout transform"
    assert without == {0: "implicit GEMM", 2_304: "implicit GEMM, precomputed", 1_849_688_064: "explicit GEMM"}


@needs_cudnn
def test_incomplete_device_properties_are_refused() -> None:
    with pytest.raises(DeviceError, match="cannot describe a device"):
        described_device({"deviceVer": 900})
