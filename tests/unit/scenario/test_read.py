import hashlib
from pathlib import Path

import pytest

from vdnnsim.dnn.networks import NETWORK_NAMES
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.errors import InputError, PolicyError, ProfileError, ScenarioError
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Aggregation
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
TWO = """\
schema_version: 1
workload: {network: alexnet, batch_size: 32, element_type: float32}
hardware: p100_x2
policies: [none(p)]
gpus: 2
"""
INFERENCE = TWO.replace("float32}", "float32, mode: inference}")


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


def test_defaults_are_those_of_the_papers(path: Path) -> None:
    path.write_text(SHORT, encoding="utf-8")
    scenario = read_scenario(path)
    titan = ROOT / "hw_profiles" / "titan_x_maxwell.yaml"
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in (path, titan)]
    assert (scenario.workload.optimizer, scenario.workload.mode) == (Optimizer.NONE, Mode.TRAINING)
    assert (scenario.memory_model, scenario.pinned_memory) == (MemoryModel.IDEAL, PinnedMemory.ARENA)
    assert scenario.sources == (("x.yaml", hashes[0]), ("hw_profiles/titan_x_maxwell.yaml", hashes[1]))


def test_every_choice_can_be_made(path: Path) -> None:
    text = SHORT.replace("float32}", "float16, optimizer: adam, mode: training}")
    text = text.replace("vdnn_dyn", "{policy: vdnn_all, algorithms: m}")
    path.write_text(f"{text}memory_model: best_fit\npinned_memory: per_offload\n", encoding="utf-8")
    scenario = read_scenario(path, known_policies())
    assert scenario.workload.element_type is ElementType.FLOAT16
    assert scenario.workload.optimizer is Optimizer.ADAM
    assert (scenario.memory_model, scenario.pinned_memory) == (MemoryModel.BEST_FIT, PinnedMemory.PER_OFFLOAD)
    assert [policy.label for policy in scenario.policies] == ["base(p)", "vdnn_all(m)"]


DYN = "[base(p), vdnn_dyn]"


@pytest.mark.parametrize(
    ("old", "new", "place", "fragment"),
    [
        (SHORT, "", "the file is empty", ""),
        (SHORT, "[]", "found an empty list", "policies, memory_model, pinned_memory, execution, gpus, gradients"),
        (SHORT, "a scenario", "found 'a scenario'", "schema_version, workload, hardware, policies"),
        (": 1", ": 2", "schema_version: found 2", "expected 1"),
        ("schema_version: 1\n", "", "'schema_version' is missing", "required are schema_version, workload, hardware"),
        ("policies:", "policy:", "'policy' is not a key", "did you mean 'policies'?"),
        ("network:", "netwrok:", "workload: 'netwrok' is not a key", "did you mean 'network'? (network, batch_size,"),
        ("network: alexnet, ", "", "workload: 'network' is missing", "network, batch_size"),
        ("alexnet", "vgg61", "workload.network: 'vgg61'", f"did you mean 'vgg16'? ({', '.join(NETWORK_NAMES)})"),
        ("alexnet", "wrn_17_300", "workload.network: 'wrn_17_300'", "did you mean 'wrn_16_256'? (D = 8, 16, 28;"),
        ("alexnet", "16", "workload.network: found 16", ", ".join(NETWORK_NAMES)),
        *(
            ("32,", f"{stated},", f"workload.batch_size: found {shown}", "an integer from 1 to 1000000")
            for stated, shown in (
                *(("0", "0"), ("-1", "-1"), ("1000001", "1000001"), ("32.0", "32.0"), ("'32'", "'32'")),
                *(("true", "true"), (".nan", "nan"), (".inf", "inf"), ("", "nothing")),
                ("9" * 5000, f"'{'9' * 80}...'"),
            )
        ),
        ("float32", "float33", "workload.element_type: 'float33'", "did you mean 'float32'? (float32, tf32, "),
        ("float32", "float32, optimizer: adma", "workload.optimizer: 'adma'", "'adam'? (none, sgd, momentum, adam)"),
        ("float32", "float32, mode: train", "workload.mode: 'train'", "'training'? (training, inference)"),
        ("float32", "float32, mode: inference, optimizer: sgd", "workload.optimizer: found 'sgd'", "'none'"),
        (DYN, "[]", "policies: found an empty list", ""),
        (DYN, "base(p)", "policies: found 'base(p)'", "list"),
        ("vdnn_dyn", "7", "policies[1]: found 7", "vdnn_all(m)"),
        ("vdnn_dyn", "x" * 400, f"policies[1]: found '{'x' * 80}...'", "vdnn_all(m)"),
        ("vdnn_dyn", "{policy: base, algorithms: p}", "policies[1]: 'base(p)'", "policies[0]"),
        ("policies:", "memory_model: best\npolicies:", "memory_model: 'best'", "'best_fit'? (ideal, best_fit,"),
        ("policies:", "pinned_memory: offload\npolicies:", "pinned_memory: 'offload'", "(arena, per_offload)"),
        ("titan_x_maxwell", "12", "hardware: found 12", ".yaml"),
    ],
)
def test_a_wrong_scenario_is_refused_at_its_place(path: Path, old: str, new: str, place: str, fragment: str) -> None:
    assert old in SHORT
    message = refusal(path, SHORT.replace(old, new))
    assert message.startswith(place)
    assert fragment in message


def test_a_wrong_policy_profile_or_path_is_refused_at_its_place(path: Path) -> None:
    message = refusal(path, SHORT.replace("vdnn_dyn", "vdnn_al(m)"), PolicyError)
    assert message.startswith("policies[1]: 'vdnn_al' is not a policy; did you mean 'vdnn_all'?")
    assert ", ".join(known_policies()) in message
    assert refusal(path, SHORT.replace("titan_x_maxwell", "no.yaml"), ProfileError).startswith("hardware: 'no.yaml'")
    with pytest.raises(ScenarioError, match=r"^no/such\.yaml: cannot be read: no such file or directory$"):
        read_scenario(Path("no/such.yaml"))


TITAN = (ROOT / "hw_profiles" / "titan_x_maxwell.yaml").read_text(encoding="utf-8")
MINE = SHORT.replace("titan_x_maxwell", "mine.yaml")


def write_mine(text: str) -> None:
    """Write a changed profile of the Titan X under another name."""
    Path("mine.yaml").write_text(text.replace("name: titan_x_maxwell", "name: mine"), encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "line {model}: cost_model: lacks idle_tail_waves"),
        (
            "  waves: {value: 1, origin: fitted, source: x}\n  idle_tail_waves:",
            "line {waves}: cost_model: 'waves' is not a parameter",
        ),
        (
            "  product_dram_fraction: {value: 1, origin: fitted, source: x}\n  idle_tail_waves:",
            "line {waves}: cost_model: 'product_dram_fraction' is not a parameter",
        ),
    ],
)
def test_a_profile_must_state_the_parameters_of_the_cost_model(path: Path, line: str, problem: str) -> None:
    """Its file and line are named, not the scenario; `check` says the same of the profile alone."""
    start = TITAN.index("  idle_tail_waves:")
    lines = TITAN.splitlines()
    problem = problem.format(model=1 + lines.index("cost_model:"), waves=1 + lines.index("  idle_tail_waves:"))
    end = start + len("  idle_tail_waves:") if line else TITAN.index("\n  scatter_depth:") + 1
    write_mine(TITAN[:start] + line + TITAN[end:])

    refused = refusal(path, MINE, ProfileError)
    assert refused.startswith(f"mine.yaml: {problem}")
    for name in ("x.yaml", "mine.yaml"):
        with pytest.raises(ProfileError, match=f"^mine.yaml: {problem}"):
            check_file(Path(name), known_policies())


def test_a_profile_without_a_cost_model_is_one_but_cannot_be_simulated(path: Path) -> None:
    write_mine(TITAN[: TITAN.index("\ncost_model:") + 1])
    assert check_file(Path("mine.yaml"), {}).endswith("; neither kernels nor a cost_model: cannot be simulated")
    assert refusal(path, MINE, ProfileError).startswith("mine.yaml: has neither kernels nor a cost_model")
    assert "cannot" not in check_file(ROOT / "hw_profiles" / "titan_x_maxwell.yaml", {})


def test_a_machine_may_be_known_by_its_datasheet_alone(path: Path) -> None:
    """A roofline needs a launch overhead and nothing of the other model; what it does not know is refused."""
    start = TITAN.index("\ncost_model:")
    model = "\ncost_model:\n  kind: roofline\n  launch_overhead_s: {value: 5e-06, origin: assumed, source: x}\n"
    write_mine(TITAN[:start] + model)
    path.write_text(MINE, encoding="utf-8")

    assert read_scenario(path, known_policies()).server.cost_model == {"launch_overhead_s": 5e-6}
    assert "cannot" not in check_file(Path("mine.yaml"), {})
    write_mine(TITAN[:start] + model.replace("  launch_", "  lunch_"))
    line = TITAN[:start].count("\n") + 4
    assert refusal(path, MINE, ProfileError).startswith(f"mine.yaml: line {line}: cost_model: 'lunch_overhead_s'")


def test_a_profile_must_state_a_peak_for_the_element_type(path: Path) -> None:
    """A machine whose profile lacks bfloat16 is no machine of speed zero; the scenario is refused."""
    start, end = TITAN.index("    bfloat16:"), TITAN.index("\nlink:")
    write_mine(TITAN[:start] + TITAN[end:])
    message = refusal(path, MINE.replace("float32", "bfloat16"))
    assert message.startswith("workload.element_type: mine.yaml states no gpu.peak for 'bfloat16'")


@pytest.mark.usefixtures("path")
def test_a_cluster_says_its_hosts_and_gpus() -> None:
    Path("two_hosts.yaml").write_text(
        "{schema_version: 1, name: two_hosts, extends: h100_x8, description: x, hosts: 2}"
    )
    assert "; 8 GPUs in each of 2 hosts; " in check_file(Path("two_hosts.yaml"), {})
    assert "; 8 GPUs; " in check_file(ROOT / "hw_profiles" / "h100_x8.yaml", {})


@pytest.mark.parametrize("gradients", [None, *Aggregation])
def test_gradients_are_added_up_by_the_cpu_by_default(path: Path, gradients: Aggregation | None) -> None:
    path.write_text(TWO + (f"gradients: {gradients.value}\n" if gradients else ""), encoding="utf-8")
    scenario = read_scenario(path)
    assert (scenario.gpus, scenario.gradients) == (2, gradients or Aggregation.CPU)
    found = check_file(path, known_policies())
    assert found == "x.yaml: a scenario: alexnet (32), float32, training on p100_x2 with 2 GPUs, under none(p)"


@pytest.mark.parametrize(("text", "gpus"), [(TWO.replace("gpus: 2\n", ""), 1), (INFERENCE, 2)])
def test_one_gpu_and_inference_exchange_no_gradients(path: Path, text: str, gpus: int) -> None:
    path.write_text(text, encoding="utf-8")
    scenario = read_scenario(path)
    assert (scenario.gpus, scenario.gradients) == (gpus, None)
    assert scenario.workload.mode is (Mode.INFERENCE if gpus == 2 else Mode.TRAINING)


@pytest.mark.parametrize(
    ("text", "place", "fragment"),
    [
        (TWO.replace("gpus: 2", "gpus: 3"), "gpus: found 3", "p100_x2.yaml has 2 GPUs"),
        (TWO.replace("gpus: 2", "gpus: 3").replace("p100_x2", "titan_x_maxwell"), "gpus: found 3", "one GPU"),
        (TWO.replace("gpus: 2", "gpus: 0"), "gpus: found 0", "1 to 1000"),
        (TWO.replace("gpus: 2", "gradients: ring"), "gradients: found 'ring'", "a GPU alone"),
        (TWO + "gradients: tree\n", "gradients: 'tree'", "cpu, gpu, ring, ddp, ddp_views"),
        (INFERENCE + "gradients: cpu\n", "gradients: found 'cpu'", "inference"),
    ],
)
def test_gpus_and_gradients_that_cannot_be_are_refused(path: Path, text: str, place: str, fragment: str) -> None:
    message = refusal(path, text)
    assert message.startswith(place)
    assert fragment in message


@pytest.mark.parametrize(("gpus", "batch_size"), [(2, 120), (4, 110)])
def test_the_scenarios_of_the_swap_paper(gpus: int, batch_size: int) -> None:
    """Kim et al. 2018, IV-B: the first rows of Tables II and III, gradients added up by the CPU."""
    scenario = read_scenario(ROOT / "scenarios" / f"swap2018_{gpus}gpus.yaml")
    assert (scenario.gpus, scenario.workload.batch_size) == (gpus, batch_size)
    assert scenario.gradients is Aggregation.CPU
    assert scenario.workload.graph.name == "vgg_d_13conv"
    policies = [f"{name}(tensorflow)" for name in ("none", "swap", "staggered_swap")]
    assert [policy.label for policy in scenario.policies] == policies
