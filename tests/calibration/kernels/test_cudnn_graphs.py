import sys
from dataclasses import replace

import pytest

from calibration.kernels.cudnn_graphs import PlanFinder, Target, described_device, frontend
from calibration.kernels.cudnn_plans import ConvolutionProblem, family_of
from calibration.kernels.described_gpus import H200
from tests.calibration.kernels.frontend_double import Behavior, Engine, Frontend, Note
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import DeviceError
from vdnnsim.units import ElementType

CONV2_1 = ConvolutionShape(n=64, c=64, k=128, input_size=(112, 112), kernel=(3, 3), padding=(1, 1))
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
