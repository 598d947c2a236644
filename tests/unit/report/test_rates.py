from dataclasses import replace

from tests.unit.report.test_table import printed
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.samples import IMAGE, Sample
from vdnnsim.dnn.workload import Workload
from vdnnsim.report.columns import column_names, result_rows
from vdnnsim.report.findings import caption, verdict
from vdnnsim.report.plots.scaling import scaling_title
from vdnnsim.report.rates import per_second, rate_cells, rate_text
from vdnnsim.report.table import result_table

TEXT = Sample("text", "token", 1024)


def test_a_rate_of_texts_is_one_of_tokens_too() -> None:
    """38 x 1024 = 38912."""
    assert rate_text(TEXT, 38.0) == "38 texts/s, 38912 tokens/s"
    assert rate_text(IMAGE, 1569.0) == "1569 images/s"


def test_rates_of_a_column_have_as_many_decimals() -> None:
    """112.8 needs one decimal for four digits, so 286 has one too."""
    assert rate_cells([286.0, 112.84, None]) == ["286.0", "112.8", ""]
    assert rate_cells([None]) == [""]


def test_units() -> None:
    assert (per_second(TEXT), per_second(IMAGE)) == ("texts/s", "images/s")


def test_texts_are_called_texts_wherever_a_person_reads(result: ScenarioResult, move: PolicyResult) -> None:
    """1/8 text/s has 1024 / 8 = 128 tokens/s.

    Without mean memory, offloaded and texts/s the columns take 7 + 4 + 4 + 7 + 7 + 6 characters and 5 gaps of 2: 45.
    """
    texts = replace(result, workload=Workload(build_network("gpt2_small"), 1), results=(move,))

    assert caption(texts).startswith("gpt2_small, batch 1 text of 1024 tokens, float32, training on")
    assert "8.00 s per iteration, 0.125 texts/s, 128 tokens/s. " in verdict(texts)
    assert scaling_title([texts]) == "move(m) does 0.125 texts/s, 128 tokens/s on 1 GPUs"
    wide, narrow = (printed(result_table(texts), width=width) for width in (120, 45))
    assert wide[2].split()[:2] == ["time", "texts"]
    assert "too narrow for mean memory, offloaded, texts/s; results.csv has all" in " ".join(narrow)
    row = dict(zip(column_names(), result_rows(texts)[0], strict=True))
    assert (row["images_per_s"], row["tokens_per_s"]) == (0.125, 128.0)
