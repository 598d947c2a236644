import hashlib
from pathlib import Path

import pytest

from vdnnsim.dnn.networks import NETWORK_NAMES
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.errors import InputError, PolicyError, ProfileError, ScenarioError
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.check import check_file
from vdnnsim.scenario.read import read_scenario
from vdnnsim.units import ElementType

ROOT = Path(__file__).parents[3]
PAPER = {
    "alexnet": ("alexnet", 128),
    "overfeat": ("overfeat", 128),
    "googlenet": ("googlenet", 128),
    "vgg16_64": ("vgg16", 64),
    "vgg16_128": ("vgg16", 128),
    "vgg16_256": ("vgg16", 256),
    "vgg116": ("vgg116", 32),
    "vgg216": ("vgg216", 32),
    "vgg316": ("vgg316", 32),
    "vgg416": ("vgg416", 32),
}
POLICIES = ["base(m)", "base(p)", "vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn"]
SHORT = """\
schema_version: 1
workload: {network: alexnet, batch_size: 32, element_type: float32}
hardware: titan_x_maxwell
policies: [base(p), vdnn_dyn]
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test writes its scenario; the profile is the shipped one."""
    monkeypatch.chdir(tmp_path)
    return Path("x.yaml")


def refusal(path: Path, text: str, kind: type[InputError] = ScenarioError) -> str:
    """Return what a scenario is refused with, less the name of the file."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(kind) as caught:
        read_scenario(path)
    assert type(caught.value) is kind
    return str(caught.value).removeprefix("x.yaml: ")


@pytest.mark.parametrize("name", PAPER)
def test_each_network_and_batch_of_the_paper_has_its_scenario(name: str) -> None:
    """MICRO 2016, IV-C: six conventional networks with their batches, four very deep ones with batch 32."""
    scenario = read_scenario(ROOT / "scenarios" / f"{name}.yaml")
    assert scenario.name == name
    assert (scenario.workload.graph.name, scenario.workload.batch_size) == PAPER[name]
    assert scenario.workload.element_type is ElementType.FLOAT32
    assert scenario.server.name == "titan_x_maxwell"
    assert [policy.label for policy in scenario.policies] == POLICIES
    assert (scenario.memory_model, scenario.pinned_memory) == (MemoryModel.IDEAL, PinnedMemory.ARENA)


def test_every_shipped_scenario_can_be_read_and_names_itself() -> None:
    paths = sorted(ROOT.glob("scenarios/*.yaml"))
    assert {path.stem for path in paths} >= set(PAPER)
    for path in paths:
        assert read_scenario(path).name == path.stem
        assert path.read_text(encoding="utf-8").startswith(f"# scenarios/{path.name}: ")


def test_what_is_left_out_is_as_in_the_papers(path: Path) -> None:
    path.write_text(SHORT, encoding="utf-8")
    scenario = read_scenario(path)
    assert (scenario.workload.optimizer, scenario.workload.mode) == (Optimizer.NONE, Mode.TRAINING)
    assert (scenario.memory_model, scenario.pinned_memory) == (MemoryModel.IDEAL, PinnedMemory.ARENA)


def test_every_choice_can_be_made(path: Path) -> None:
    text = SHORT.replace("float32}", "float16, optimizer: adam, mode: training}")
    path.write_text(f"{text}memory_model: best_fit\npinned_memory: per_offload\n", encoding="utf-8")
    scenario = read_scenario(path, known_policies())
    assert scenario.workload.element_type is ElementType.FLOAT16
    assert scenario.workload.optimizer is Optimizer.ADAM
    assert (scenario.memory_model, scenario.pinned_memory) == (MemoryModel.BEST_FIT, PinnedMemory.PER_OFFLOAD)


def test_inference_updates_nothing(path: Path) -> None:
    path.write_text(SHORT.replace("float32}", "float32, mode: inference, optimizer: none}"), encoding="utf-8")
    assert read_scenario(path).workload.mode is Mode.INFERENCE


def test_a_policy_with_options_is_a_mapping(path: Path) -> None:
    path.write_text(SHORT.replace("vdnn_dyn", "{policy: vdnn_all, algorithms: m}"), encoding="utf-8")
    assert [policy.label for policy in read_scenario(path).policies] == ["base(p)", "vdnn_all(m)"]


def test_sources_are_the_files_that_were_read(path: Path) -> None:
    path.write_text(SHORT, encoding="utf-8")
    titan = ROOT / "hw_profiles" / "titan_x_maxwell.yaml"
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, titan)]
    assert read_scenario(path).sources == (("x.yaml", hashes[0]), ("hw_profiles/titan_x_maxwell.yaml", hashes[1]))


KEYS = "schema_version, workload, hardware, policies, memory_model, pinned_memory, execution, gpus, gradients"
WORKLOAD_KEYS = "network, batch_size, precision, element_type, optimizer, mode"
POLICY = "a policy as vdnn_all(m), or a short mapping with the key policy and its options"
TYPES = "float32, tf32, float16, bfloat16"
BATCH = "expected an integer from 1 to 1000000"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SHORT, "", "the file is empty"),
        (SHORT, "[]", f"found an empty list, expected a mapping with the keys {KEYS}"),
        (SHORT, "a scenario", f"found 'a scenario', expected a mapping with the keys {KEYS}"),
        (": 1", ": 2", "schema_version: found 2, expected 1, the version that this vdnnsim reads"),
        (
            "schema_version: 1\n",
            "",
            "'schema_version' is missing; required are schema_version, workload, hardware, policies",
        ),
        ("policies:", "policy:", f"'policy' is not a key; did you mean 'policies'? ({KEYS})"),
        ("network:", "netwrok:", f"workload: 'netwrok' is not a key; did you mean 'network'? ({WORKLOAD_KEYS})"),
        (
            "network: alexnet, ",
            "",
            "workload: 'network' is missing; required are network, batch_size",
        ),
        (
            "alexnet",
            "vgg61",
            f"workload.network: 'vgg61' is not a network; did you mean 'vgg16'? ({', '.join(NETWORK_NAMES)})",
        ),
        (
            "alexnet",
            "wrn_17_300",
            "workload.network: 'wrn_17_300' is not a network; did you mean 'wrn_16_256'? (D = 8, 16, 28; W = 1 to 256)",
        ),
        ("alexnet", "16", f"workload.network: found 16, expected a network: {', '.join(NETWORK_NAMES)}"),
        ("32,", "0,", f"workload.batch_size: found 0, {BATCH}"),
        ("32,", "-1,", f"workload.batch_size: found -1, {BATCH}"),
        ("32,", "1000001,", f"workload.batch_size: found 1000001, {BATCH}"),
        ("32,", "32.0,", f"workload.batch_size: found 32.0, {BATCH}"),
        ("32,", "'32',", f"workload.batch_size: found '32', {BATCH}"),
        ("32,", "true,", f"workload.batch_size: found true, {BATCH}"),
        ("32,", ".nan,", f"workload.batch_size: found nan, {BATCH}"),
        ("32,", ".inf,", f"workload.batch_size: found inf, {BATCH}"),
        ("32,", ",", f"workload.batch_size: found nothing, {BATCH}"),
        ("32,", f"{'9' * 5000},", f"workload.batch_size: found '{'9' * 80}...', {BATCH}"),
        (
            "float32",
            "fp32",
            f"workload.element_type: 'fp32' is not an element type; did you mean 'tf32'? ({TYPES})",
        ),
        (
            "float32",
            "float32, optimizer: adma",
            "workload.optimizer: 'adma' is not an optimizer; did you mean 'adam'? (none, sgd, momentum, adam)",
        ),
        (
            "float32",
            "float32, mode: train",
            "workload.mode: 'train' is not a mode; did you mean 'training'? (training, inference)",
        ),
        (
            "float32",
            "float32, mode: inference, optimizer: sgd",
            "workload.optimizer: found 'sgd', expected 'none', for inference updates no weights",
        ),
        ("[base(p), vdnn_dyn]", "[]", "policies: found an empty list, expected a list of policies"),
        ("[base(p), vdnn_dyn]", "base(p)", "policies: found 'base(p)', expected a list of policies"),
        (
            "vdnn_dyn",
            "7",
            f"policies[1]: found 7, expected {POLICY}",
        ),
        ("vdnn_dyn", "x" * 400, f"policies[1]: found '{'x' * 80}...', expected {POLICY}"),
        (
            "vdnn_dyn",
            "{policy: base, algorithms: p}",
            "policies[1]: 'base(p)' stands in policies[0] already, expected it once",
        ),
        (
            "policies:",
            "memory_model: best\npolicies:",
            (
                "memory_model: 'best' is not a memory model; did you mean 'best_fit'? (ideal, best_fit, planned, "
                "pytorch, cuda_malloc, mxnet, tensorflow, cuda_vmm)"
            ),
        ),
        (
            "policies:",
            "pinned_memory: offload\npolicies:",
            "pinned_memory: 'offload' is not a way to pin memory; did you mean 'per_offload'? (arena, per_offload)",
        ),
        (
            "titan_x_maxwell",
            "12",
            "hardware: found 12, expected the name of a hardware profile, or a path that ends in .yaml",
        ),
    ],
)
def test_a_wrong_scenario_is_refused(path: Path, old: str, new: str, message: str) -> None:
    assert old in SHORT
    assert refusal(path, SHORT.replace(old, new)) == message


def test_a_missing_scenario_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"^no/such\.yaml: cannot be read: no such file or directory$"):
        read_scenario(Path("no/such.yaml"))


def test_a_wrong_policy_is_refused_at_its_place(path: Path) -> None:
    names = ", ".join(known_policies())
    message = refusal(path, SHORT.replace("vdnn_dyn", "vdnn_al(m)"), PolicyError)
    offered = f"policies[1]: 'vdnn_al' is not a policy; did you mean 'vdnn_all'? ({names})"
    assert message == f"{offered}; --policy-module imports your own"


def test_a_missing_profile_is_refused_at_its_place(path: Path) -> None:
    message = refusal(path, SHORT.replace("titan_x_maxwell", "no.yaml"), ProfileError)
    assert message == "hardware: 'no.yaml' is not a file; looked for no.yaml"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "cost_model: lacks idle_tail_waves"),
        (
            "  waves: {value: 1, origin: fitted, source: x}\n  idle_tail_waves:",
            "cost_model: 'waves' is not a parameter of this model",
        ),
    ],
)
def test_a_profile_must_state_the_parameters_of_the_cost_model(path: Path, line: str, problem: str) -> None:
    """The file that is wrong is named: it is not the scenario. For `check` the profile alone is as wrong."""
    titan = (ROOT / "hw_profiles" / "titan_x_maxwell.yaml").read_text(encoding="utf-8")
    start = titan.index("  idle_tail_waves:")
    end = start + len("  idle_tail_waves:") if line else titan.index("\n  scatter_depth:") + 1
    mine = (titan[:start] + line + titan[end:]).replace("name: titan_x_maxwell", "name: mine")
    Path("mine.yaml").write_text(mine, encoding="utf-8")

    refused = refusal(path, SHORT.replace("titan_x_maxwell", "mine.yaml"), ProfileError)
    assert refused.startswith(f"mine.yaml: {problem}")
    for name in ("x.yaml", "mine.yaml"):
        with pytest.raises(ProfileError, match=f"^mine.yaml: {problem}"):
            check_file(Path(name), known_policies())


def test_a_profile_without_a_cost_model_is_one_but_cannot_be_simulated(path: Path) -> None:
    titan = (ROOT / "hw_profiles" / "titan_x_maxwell.yaml").read_text(encoding="utf-8")
    mine = titan[: titan.index("\ncost_model:") + 1].replace("name: titan_x_maxwell", "name: mine")
    Path("mine.yaml").write_text(mine, encoding="utf-8")

    assert check_file(Path("mine.yaml"), {}).endswith("; neither kernels nor a cost_model: cannot be simulated")
    message = refusal(path, SHORT.replace("titan_x_maxwell", "mine.yaml"), ProfileError)
    assert message == "mine.yaml: has neither kernels nor a cost_model, so nothing can be timed on it"
    assert "cannot" not in check_file(ROOT / "hw_profiles" / "titan_x_maxwell.yaml", {})


def test_a_machine_may_be_known_by_its_datasheet_alone(path: Path) -> None:
    """A roofline needs a launch overhead and nothing of the other model; what it does not know is refused."""
    titan = (ROOT / "hw_profiles" / "titan_x_maxwell.yaml").read_text(encoding="utf-8")
    start = titan.index("\ncost_model:")
    model = "\ncost_model:\n  kind: roofline\n  launch_overhead_s: {value: 5e-06, origin: assumed, source: x}\n"
    mine = (titan[:start] + model).replace("name: titan_x_maxwell", "name: mine")
    Path("mine.yaml").write_text(mine, encoding="utf-8")
    scenario = SHORT.replace("titan_x_maxwell", "mine.yaml")
    path.write_text(scenario, encoding="utf-8")

    assert read_scenario(path, known_policies()).server.cost_model == {"launch_overhead_s": 5e-6}
    assert "cannot" not in check_file(Path("mine.yaml"), {})
    Path("mine.yaml").write_text(mine.replace("  launch_", "  lunch_"), encoding="utf-8")
    refused = refusal(path, scenario, ProfileError)
    assert refused.startswith(
        "mine.yaml: cost_model: 'lunch_overhead_s' is not a parameter of a roofline; did you mean"
    )


def test_a_profile_must_state_a_peak_for_the_element_type(path: Path) -> None:
    """A machine whose profile lacks bfloat16 is no machine of speed zero; the scenario is refused."""
    titan = (ROOT / "hw_profiles" / "titan_x_maxwell.yaml").read_text(encoding="utf-8")
    start, end = titan.index("    bfloat16:"), titan.index("\nlink:")
    mine = (titan[:start] + titan[end:]).replace("name: titan_x_maxwell", "name: mine")
    Path("mine.yaml").write_text(mine, encoding="utf-8")
    message = refusal(path, SHORT.replace("titan_x_maxwell", "mine.yaml").replace("float32", "bfloat16"))
    expected = "mine.yaml states no gpu.peak for 'bfloat16', expected one of float32, float16"
    assert message == f"workload.element_type: {expected}"
