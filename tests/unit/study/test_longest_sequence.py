"""The longest sequence that fits: of networks, and of models that are captured on sequences of several lengths."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.captured_steps import chain, sequences
from tests.command_line import csv_rows
from tests.machines import shipped_profile
from tests.nested import changed
from vdnnsim.cli import cli
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.samples import sample_of
from vdnnsim.errors import CaptureError, InputError, StudyError
from vdnnsim.planning.deadline import TimeLimit
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.longest_sequence import longest_sequences
from vdnnsim.study.what_if import what_if

LLAMA = """
schema_version: 1
workload: {{network: llama_1b, batch_size: 2, precision: {precision}{more}}}
hardware: rtx_4090
policies: [base(p)]
"""


def llama(folder: Path, more: str = "", precision: str = "bfloat16") -> Path:
    path = folder / "llama.yaml"
    path.write_text(LLAMA.format(more=more, precision=precision))
    return path


def fits(scenario: Scenario) -> bool:
    return run_scenario(scenario).results[0].fits


@pytest.mark.parametrize("precision", ["bfloat16", "amp_bfloat16"])
def test_a_network_is_built_on_sequences_of_any_length(precision: str, tmp_path: Path) -> None:
    """Tokens make no weights. A scenario on others is that of a file that states them."""
    scenario = read_scenario(llama(tmp_path, ", tokens: 512", precision))
    graph = scenario.workload.graph
    assert (graph.name, graph.parameters, sample_of(graph).tokens) == ("llama_1b", 1_100_048_384, 512)
    own = read_scenario(llama(tmp_path, "", precision))
    assert sample_of(own.workload.graph).tokens == 2048
    assert own.at_tokens(512).workload == scenario.workload


def test_the_longest_sequence_fits_and_a_step_more_does_not(tmp_path: Path) -> None:
    path = llama(tmp_path)
    done = CliRunner().invoke(cli, ["max-batch", str(path), "--longest", "--csv", str(tmp_path / "found.csv")])
    assert done.exit_code == 0, done.output
    (row,) = csv_rows(tmp_path / "found.csv")
    tokens, scenario = int(row["tokens"]), read_scenario(path)
    assert tokens % 64 == 0
    assert fits(scenario.at_tokens(tokens))
    assert not fits(scenario.at_tokens(tokens + 64))
    assert "llama_1b, batch 2, longest sequence, bfloat16" in " ".join(done.output.split())
    assert row["batch_size"] == "2"
    assert row["refusal"]


def test_tokens_are_changed_by_what_if(tmp_path: Path) -> None:
    path = llama(tmp_path)
    (change,) = what_if(read_scenario(path), tmp_path, ["workload.tokens=1024"], known_policies())
    (alone,) = run_scenario(read_scenario(llama(tmp_path, ", tokens: 1024"))).results
    assert change.after.number("iteration_s") == alone.metrics.iteration_s
    assert change.before.number("iteration_s") > alone.metrics.iteration_s


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        ("network: gpt2_small, tokens: 2048", "workload.tokens: gpt2_small: found 2048 tokens, expected 1024 at most"),
        ("network: vgg16, tokens: 7", "workload.tokens: 'vgg16' has no tokens, expected one of gpt2_small, llama_1b"),
        ("network: llama_1b, tokens: 0", "workload.tokens: found 0, expected an integer"),
    ],
)
def test_tokens_that_a_network_cannot_have_are_refused(workload: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        f"schema_version: 1\nworkload: {{{workload}, batch_size: 1}}\nhardware: rtx_4090\npolicies: [base(p)]\n"
    )
    with pytest.raises(InputError, match=r"wrong\.yaml: ") as caught:
        read_scenario(path)
    assert why in str(caught.value)


class Captures:
    """A model of sequences that is captured on others, with notes of when and which."""

    def __init__(self, step_of: Callable[[int], CapturedStep], tokens: int, memory_bytes: int) -> None:
        self.asked: list[list[int]] = []
        self._step_of = step_of
        model = CapturedModel(step_of(tokens), capture_lengths=self._capture)
        scenario = scenario_of(model, "captured", shipped_profile("rtx_4090"), (PyTorch(),))
        memory_bytes += scenario.server.gpu.context_bytes
        self.scenario = changed(scenario, "server.gpu", memory_bytes=memory_bytes)

    def _capture(self, lengths: Sequence[int]) -> list[CapturedModel]:
        self.asked.append(list(lengths))
        return [CapturedModel(self._step_of(each)) for each in lengths]


def is_sure(captures: Captures, tokens: int) -> bool:
    """Whether sequences take at least 5 % less than there is, as a run judges."""
    result = run_scenario(captures.scenario.at_tokens(tokens))
    return result.fits_surely


def is_edge(captures: Captures, tokens: int, step: int) -> bool:
    scenario = captures.scenario
    return fits(scenario.at_tokens(tokens)) and not fits(scenario.at_tokens(tokens + step))


def test_captures_at_three_lengths_say_where_the_longest_lies_which_is_captured() -> None:
    """Of 1024 tokens a quarter, two and three, each 64 less; 8 t t bytes and PyTorch's 20 MiB segments fill 100 MiB."""
    captures = Captures(sequences, 1024, 100 * 2**20)
    (found,), (sure,), source = longest_sequences(captures.scenario)
    assert captures.asked == [[192, 448, 704], [sure.size, found.size, found.size + 64]]
    assert is_sure(captures, sure.size)
    assert not is_sure(captures, sure.size + 64)
    assert is_edge(captures, found.size, 64)
    assert "captures at 192, 448, 704 and 1024" in source
    assert found.samples_per_s is not None
    assert found.batch_size == 2


def test_efforts_that_grow_otherwise_do_not_hinder_the_search() -> None:
    """The convolution moves 100 bytes a token, and 51,200 at most."""

    def saturating(tokens: int) -> CapturedStep:
        step = sequences(tokens)
        first, *others = step.operations
        first = msgspec.structs.replace(first, bytes_moved=100 * min(tokens, 512))
        return msgspec.structs.replace(step, operations=(first, *others))

    captures = Captures(saturating, 1024, 100 * 2**20)
    (found,), _, _ = longest_sequences(captures.scenario)
    assert len(captures.asked) == 2
    assert is_edge(captures, found.size, 64)


def test_short_sequences_are_searched_token_by_token() -> None:
    captures = Captures(sequences, 16, 100 * 2**20)
    (found,), _, _ = longest_sequences(captures.scenario)
    assert captures.asked[0] == [3, 7, 11]
    assert is_edge(captures, found.size, 1)


def test_a_model_that_grows_otherwise_is_captured_at_each_length() -> None:
    """8 t t t / 64 bytes."""
    captures = Captures(lambda tokens: sequences(tokens, square=tokens**3 // 8), 512, 100 * 2**20)
    (found,), _, source = longest_sequences(captures.scenario)
    assert source.startswith("tokens: captured at each length, for they do not grow on a parabola: storages[6]")
    assert is_edge(captures, found.size, 64)


def test_a_jump_beyond_the_captures_is_found_by_the_capture_of_the_answer() -> None:
    """From 2048 tokens on twice as many bytes."""
    captures = Captures(
        lambda tokens: sequences(tokens, square=8 * tokens**2 * (1 + (tokens >= 2048))), 1024, 100 * 2**20
    )
    (found,), _, _ = longest_sequences(captures.scenario)
    assert is_edge(captures, found.size, 64)
    assert len(captures.asked) > 2


def test_a_model_that_takes_no_longer_sequences_says_so() -> None:
    """As one with 1024 positions."""

    def limited(tokens: int) -> CapturedStep:
        if tokens > 1024:
            raise CaptureError("net.py:7: IndexError: 1024 rows")
        return sequences(tokens)

    (found,), _, source = longest_sequences(Captures(limited, 512, 100 * 2**20).scenario)
    assert (found.tokens, found.refusal) == (1024, None)
    assert "the model takes 1024 at most: net.py:7: IndexError" in source


def test_a_search_that_ends_early_says_how_far_it_came() -> None:
    captures = Captures(sequences, 1024, 100 * 2**20)
    (found,), _, _ = longest_sequences(captures.scenario, TimeLimit(1e-9))
    assert (found.size, found.samples_per_s) == (0, None)
    assert found.untried is not None
    assert found.untried % 64 == 0


@pytest.mark.parametrize(
    ("step", "why"), [(chain(2), "reads no sequences of tokens"), (sequences(1024), "cannot be captured on")]
)
def test_what_has_no_other_length_is_refused(step: CapturedStep, why: str) -> None:
    scenario = scenario_of(CapturedModel(step), "captured", shipped_profile("rtx_4090"), (PyTorch(),))
    with pytest.raises(StudyError, match=why):
        longest_sequences(scenario)
