"""`--model` in the place of a scenario; instead of a capture there is a chain made by hand, of any batch size."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calibration.capture import isolation
from calibration.capture.request import Request
from tests.captured_steps import sequences
from tests.command_line import csv_rows
from tests.refusals import refusal as refused_with
from vdnnsim.cli import cli
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError, InputError
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.units import Precision

MODEL = ("--model", "timm:chain", "--batch", "4", "--hardware")


def vdnnsim(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def refusal(*arguments: str) -> str:
    return refused_with(InputError, vdnnsim, *arguments)


def test_run_answers_and_writes_a_report(asked: list[Request]) -> None:
    done = vdnnsim("run", *MODEL, "rtx_4090", "--image", "1x2x2", "--policy", "pytorch", "--policy", "save_on_cpu")
    assert done.exit_code == 0
    assert asked == [
        Request(
            model="timm:chain",
            batch_size=4,
            image=(1, 2, 2),
            mode=Mode.TRAINING,
            precision=Precision.FLOAT32,
            optimizer="adamw",
            compute_capability=(8, 9),
        )
    ]
    assert "Its process takes 510 MiB of 23.6 GiB: " in done.stdout
    assert "captured timm:chain at a batch of 4 in float32" in done.stderr
    manifest = json.loads(Path("reports/chain-run-rtx_4090/run.json").read_text())
    assert manifest["scenario"]["policies"] == ["pytorch(p)", "save_on_cpu(p)"]
    assert manifest["scenario"]["memory_model"] == "pytorch"
    assert manifest["captured"]["model"] == "chain"
    assert manifest["advice"] == []
    assert manifest["inputs"][0]["name"] == "timm:chain, captured"


def test_a_card_of_unknown_compute_capability_is_named(asked: list[Request]) -> None:
    """A profile that extends nothing and has a name that no card has: the default card is captured, with a notice."""
    text = (shipped_folder(PROFILES) / "a40.yaml").read_text(encoding="utf-8")
    Path("odd.yaml").write_text(text.replace("NVIDIA A40", "Odd").replace("name: a40", "name: odd"), encoding="utf-8")
    done = vdnnsim("run", *MODEL, "odd.yaml", "--image", "1x2x2", "--policy", "pytorch", "--policy", "save_on_cpu")
    assert done.stderr.count("odd: its compute capability is unknown, so the model is captured for 8.9; ") == 1
    assert {each.compute_capability for each in asked} == {(8, 9)}
    assert "; compute capability unknown, no card called Odd is known; " in vdnnsim("check", "odd.yaml").stdout


@pytest.mark.usefixtures("asked")
def test_each_question_about_a_model_has_its_folder() -> None:
    """Batches of 4 and 2, and 2 again, under another policy; one folder that is named takes all."""

    def said(batch: str, *more: str) -> str:
        words = ("run", *MODEL[:3], batch, "--hardware", "rtx_4090", "--image", "1x2x2", *more)
        return vdnnsim(*words).stderr.splitlines()[-1]

    assert "to reports/chain-run-rtx_4090/; read reports/chain-run-rtx_4090/report.md" in said("4")
    assert "to reports/chain-run-rtx_4090-2/; read reports/chain-run-rtx_4090-2/report.md" in said("2")
    assert "to reports/chain-run-rtx_4090-2/; read" in said("2", "--policy", "save_on_cpu")
    assert "to reports/chain-run-rtx_4090/; read" in said("4")
    assert "to here/; read" in said("4", "--out", "here")
    assert "to here/, replacing another question's (--out DIR keeps both); read" in said("2", "--out", "here")


def test_a_layout_of_more_gpus_than_a_server_has_is_refused_before_a_model_is_captured(asked: list[Request]) -> None:
    failure = refusal("run", *MODEL, "rtx_4090_x4", "--image", "1x2x2", "--parallel", "fsdp=8")
    assert "has 4 GPUs and no network card, expected 8 GPUs" in failure
    assert not asked


def test_the_allocator_is_set_in_pytorchs_words(asked: list[Request]) -> None:
    done = vdnnsim("run", *MODEL, "rtx_4090", "--allocator", "expandable_segments:True")
    assert done.exit_code == 0
    assert len(asked) == 1
    manifest = json.loads(Path("reports/chain-run-rtx_4090/run.json").read_text())
    assert manifest["scenario"]["memory_model"] == "pytorch(expandable_segments:True)"
    assert "snapshot_pytorch_p.pickle" in manifest["files"]


def test_a_model_is_captured_for_the_card(asked: list[Request]) -> None:
    """A Titan X (Maxwell) is of compute capability 5.2."""
    vdnnsim("run", *MODEL, "titan_x_maxwell", "--optimizer", "sgd", "--mode", "inference", "--precision", "float32")
    assert asked[0].compute_capability == (5, 2)
    assert (asked[0].optimizer, asked[0].mode) == ("sgd", Mode.INFERENCE)


def test_the_largest_batch_is_extended_from_two_captures(asked: list[Request]) -> None:
    done = vdnnsim("max-batch", *MODEL, "small", "--policy", "pytorch")
    assert [each.batch_size for each in asked] == [4, 2]
    text = " ".join(done.stdout.split())
    assert "batches: extended from captures at 2 and 4, between which all sizes grow linearly" in text


def test_compare_takes_a_model(asked: list[Request]) -> None:
    done = vdnnsim("compare", *MODEL, "rtx_4090", "--policies", "pytorch,checkpoint,caffe")
    assert len(asked) == 1
    assert "2 of 2 policies fit chain (4) into 23.6 GiB" in " ".join(done.stdout.split())
    assert "no plan: caffe: " in done.stdout
    assert "- Compared: all policies" not in done.stdout
    assert Path("reports/chain-compare-rtx_4090/compare.png").is_file()


def test_what_if_takes_a_model_and_captures_other_batches(asked: list[Request]) -> None:
    done = vdnnsim("whatif", *MODEL, "rtx_4090", "--set", "workload.batch_size=20")
    assert [each.batch_size for each in asked] == [4, 2]
    assert "before and after workload.batch_size=20" in " ".join(done.stdout.split())


def test_what_if_captures_what_torch_compile_makes(asked: list[Request]) -> None:
    """Once more, at the same batch; another batch follows from one at a second."""
    done = vdnnsim("whatif", *MODEL, "rtx_4090", "--set", "execution=compiled")
    assert [(each.batch_size, each.compiled) for each in asked] == [(4, False), (4, True)]
    assert "float32 with sgd, by torch.compile" in done.stderr.splitlines()[-1]
    assert "before and after execution=compiled" in " ".join(done.stdout.split())
    asked.clear()
    vdnnsim("whatif", *MODEL, "rtx_4090", "--set", "execution=compiled", "--set", "workload.batch_size=20")
    assert [(each.batch_size, each.compiled) for each in asked] == [(4, False), (4, True), (2, True)]


def test_tokens_are_captured_anew(asked: list[Request], monkeypatch: pytest.MonkeyPatch) -> None:
    """By `whatif` those that it sets, by `max-batch` shorter ones, together, and those that it finds."""

    def captured(missing: Sequence[Request], **_: object) -> list[tuple[CapturedStep, None]]:
        asked.extend(missing)
        return [(sequences(each.tokens or 0), None) for each in missing]

    monkeypatch.setattr(isolation, "captured_together", captured)
    words = (*MODEL, "small", "--tokens", "16", "--policy", "pytorch")
    done = vdnnsim("whatif", *words, "--set", "workload.tokens=24")
    assert {each.tokens for each in asked} == {16, 24}
    assert "at a batch of 4 of 24 tokens in float32" in done.stderr
    asked.clear()
    done = vdnnsim("max-batch", *words, "--longest", "--csv", "found.csv")
    (row,) = csv_rows(Path("found.csv"))
    longest = int(row["tokens"])
    assert [each.tokens for each in asked if each.tokens != 16] == [3, 7, 11, longest, longest + 1]


def test_a_model_that_does_not_fit_is_answered_for_and_the_answer_is_kept(
    asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300,000 images of 24 B are 6.9 MiB; cuBLAS has 16.2 MiB, and activations need more than the rest of 40.

    A captured batch cannot be cut, so that policy is a row; everything else is tried all the same, with other loops at
    the same batch. What is not tried the first time is tried when a limit is given, and after that nothing is.
    """
    policies = ("--policy", "pytorch", "--policy", "accumulate(p, steps=2)")
    arguments = ("run", "--model", "timm:chain", "--batch", "300000", "--hardware", "small", *policies)
    with monkeypatch.context() as short:
        short.setattr("vdnnsim.study.cached_answer.OPERATIONS", 0)
        first = vdnnsim(*arguments).stdout
        assert "more ways were not tried" in first
        assert vdnnsim(*arguments).stdout == first
    done = vdnnsim(*arguments, "--time-limit", "60 s")
    text = " ".join(done.stdout.split())
    assert "more ways were not tried" not in text
    assert "- pytorch(p) does not fit chain (300000) into 40.0 MiB: it would take " in text
    answer = text.partition("What would make it fit?")[2]
    assert all(each in answer for each in ("1. ", " micro-batches of ", "a batch of ", "checkpoint(p)", "too much"))
    assert "vdnnsim.plan(model, inputs, policy=...)" in answer
    assert "accumulate(p," in answer
    assert "as `--accumulate 2` of a smaller" in answer
    assert [each.batch_size for each in asked[2:4]] == [300_000, 150_000]
    assert {(each.batch_size, each.precision) for each in asked[4:]} >= {(300_000, Precision.AMP_BFLOAT16)}
    monkeypatch.setattr("vdnnsim.study.cached_answer.answer", None)
    assert vdnnsim(*arguments).stdout == done.stdout
    assert "What would make it fit?" in Path("reports/chain-run-small/report.md").read_text()
    manifest = json.loads(Path("reports/chain-run-small/run.json").read_text())
    assert any(each["fits"] for each in manifest["tried"])
    assert len(manifest["advice"]) >= len(manifest["tried"]) > 5


@pytest.mark.parametrize("command", [("run",), ("max-batch",), ("compare", "--policies", "pytorch"), ("machines",)])
def test_a_model_accumulates_the_gradients_of_micro_batches(command: tuple[str, ...], asked: list[Request]) -> None:
    """Two micro-batches of 4 images, each as one was captured."""
    policy = () if command[0] == "compare" else ("--policy", "pytorch")
    done = vdnnsim(*command, *MODEL, "rtx_4090", "--accumulate", "2", *policy)
    assert done.exit_code == 0
    assert {each.accumulate for each in asked} == {1}
    assert "chain (8)" in done.stdout or "in 2 micro-batches" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", *MODEL, "rtx_4090", "--accumulate", "0"), "--accumulate: found 0"),
        (("run", *MODEL, "rtx_4090", "--accumulate", "2", "--mode", "inference"), "--accumulate: found 2 in inference"),
        (("run", "x.yaml", "--batch", "3"), "--batch: found beside x.yaml"),
        (("run", "x.yaml", "--policy", "p"), "--policy: found beside x.yaml, expected one of SCENARIO and --model"),
        (("run", "--model", "timm:chain", "--hardware", "rtx_4090"), "--batch: is missing"),
        (("max-batch", "--model", "timm:chain", "--batch", "3"), "--hardware: is missing"),
        (("run", *MODEL, "rtx_4090", "--mode", "training!"), "--mode: 'training!' is not a mode"),
        (("run", *MODEL, "rtx_4090", "--batch", "0"), "--batch: found 0, expected an integer from 1 on"),
        (("run", *MODEL, "rtx_4090", "--image", "3,2"), "--image: found '3,2'"),
        (("run", *MODEL, "rtx_4090", "--policy", "pytorsh"), "'pytorsh' is not a policy; did you mean 'pytorch'?"),
        (("run", *MODEL, "rtx_4090", "--allocator", "max_split_size_mb:1"), "--allocator: max_split_size_mb: "),
        (("run", *MODEL, "rtx_4090", "--execution", "compild"), "--execution: 'compild' is not a way of execution"),
        (
            ("run", *MODEL, "rtx_4090", "--execution", "reduce-overhead"),
            "--execution: found 'reduce-overhead', expected ",
        ),
        (("run", *MODEL, "rtx_4091"), "'rtx_4091' is not a hardware profile; did you mean"),
        (("run", "chain.step.json"), "chain.step.json: is a captured step"),
    ],
)
def test_wrong_options_are_refused_in_one_line(arguments: tuple[str, ...], message: str, asked: list[Request]) -> None:
    assert refusal(*arguments).startswith(message)
    assert asked == []


def test_machines_are_ranked_for_a_model(asked: list[Request]) -> None:
    """400,000 images do not fit into 40 MiB, recomputed or not; they are captured once, as on the first card."""
    cards = ("--hardware", "rtx_4090", "--hardware", "small", "--policy", "pytorch", "--policy", "checkpoint")
    done = vdnnsim("machines", "--model", "timm:chain", "--batch", "400000", *cards, "--json")
    rows = {row["machine"]: row["policy"] for row in json.loads(done.stdout)}
    assert rows == {"rtx_4090": "pytorch(p)", "small": None}
    assert [(each.batch_size, each.compute_capability) for each in asked] == [(400_000, (8, 9))]
    assert refusal("machines", "x.yaml", "--batch", "4").startswith("--batch: found beside x.yaml")


def test_neither_a_scenario_nor_a_model_is_wrong_usage() -> None:
    done = vdnnsim("run")
    assert done.exit_code == 2
    assert "Missing argument 'SCENARIO', or --model with --batch and --hardware." in done.stderr


def test_a_model_that_cannot_be_captured_is_one_line(asked: list[Request], monkeypatch: pytest.MonkeyPatch) -> None:
    def captured(requests: Sequence[Request], **_: object) -> None:
        raise CaptureError(f"{requests[0].model}: branches on data")

    monkeypatch.setattr(isolation, "captured_together", captured)
    assert refusal("run", *MODEL, "rtx_4090") == "timm:chain: branches on data"
    assert asked == []
    assert not Path("reports").exists()
