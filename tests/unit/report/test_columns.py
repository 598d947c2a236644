from dataclasses import fields, replace

from tests.nested import changed
from vdnnsim.analysis.columns import COLUMNS, RUN, Scope, result_rows
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.report.comparison import COMPARED
from vdnnsim.study.largest_table import LARGEST
from vdnnsim.study.points.compute import OUTCOME, computed

PROMISED = """
    network batch_size gpu policy algorithms fits iteration_s samples_per_s allocated_bytes mean_allocated_bytes
    feature_allocated_bytes feature_step_mean_allocated_bytes feature_iteration_s offloaded_bytes prefetched_bytes
    host_memory_bytes stall_s performance_ratio feature_performance_ratio
"""
"""The columns that scripts rely on, in their order."""


def test_columns_have_one_place_order_and_names() -> None:
    assert (
        *PROMISED.split(),
        "reserved_bytes",
        "process_bytes",
        "tokens_per_s",
        "server_samples_per_s",
        "refusal",
    ) == RUN
    # The name of a quantity says whether it is of the server.
    quantities = [name for name in COLUMNS if name.endswith(("_s", "_bytes", "_ratio"))]
    of_server = {name for name in quantities if COLUMNS[name].scope is Scope.SERVER}
    assert of_server == {name for name in quantities if name.startswith("server_")} == {"server_samples_per_s"}
    assert COLUMNS["iteration_s"].documented(1) == COLUMNS["iteration_s"].meaning
    assert COLUMNS["iteration_s"].documented(2) == f"{COLUMNS['iteration_s'].meaning}; of one GPU"
    assert COLUMNS["policy"].documented(2) == COLUMNS["policy"].meaning
    # Every table takes its columns from one place.
    point = ("network", "batch_size", "hardware", "gpus", "policy", *OUTCOME, "error")
    changed = ("policy", "when", *OUTCOME, "error")
    assert {*RUN, *COMPARED, *LARGEST, *point, *changed} == COLUMNS.keys()
    # What is left are the two that are broken down by kind and by cause.
    assert {field.name for field in fields(RunMetrics)} - COLUMNS.keys() == {"peak_by_kind", "stall_by_cause"}


def test_rates_of_two_gpus(pair: ScenarioResult) -> None:
    """Both GPUs of base(p) take 19.2 s for their image; `results.csv` of `sweep` has the same numbers."""
    row = dict(zip(RUN, result_rows(pair)[0], strict=True))
    assert (row["samples_per_s"], row["server_samples_per_s"]) == (1 / 19.2, 2 / 19.2)
    metrics = pair.results[0].metrics
    swept = dict(zip(OUTCOME, computed(metrics, pair.oracle, "p", "", gpus=2)[1:], strict=True))
    assert {name: row[name] for name in OUTCOME} == {**swept, "algorithms": row["algorithms"]}


def test_rows_that_fit_and_that_do_not(result: ScenarioResult, move: PolicyResult) -> None:
    assert result_rows(result)[0] == (
        *("toy", 1, 0, "move(m)", "m", True, 8.0, 0.125),
        *(60, 31.25, 40, 25.0, 6.0, 10, 10, 10, 4.0),
        *(0.75, 4.0 / 6.0, 60, 60, "", 0.125, ""),
    )
    # A row that does not fit has the numbers of its replay and says why.
    row = dict(zip(RUN, result_rows(result)[1], strict=True))
    assert (row["fits"], row["iteration_s"], row["allocated_bytes"]) == (False, 6.0, 1020)
    assert row["refusal"] == (
        "backward weights of conv1 asked for 990 B (workspace) of GPU memory; 970 B of 1000 B were free; "
        "held: weights 20 B, activations 10 B"
    )
    # A quantity is a float even where it is whole.
    stall_s = result_rows(result)[1][RUN.index("stall_s")]
    assert isinstance(stall_s, float)
    # A pool of 60 B, a context of 300 and two further handles of 20 B each.
    stated = changed(result, "server.gpu", context_bytes=300, handle_bytes=20)
    stated = replace(stated, results=(changed(move, "trace.plan", handles=2),))
    row = dict(zip(RUN, result_rows(stated)[0], strict=True))
    assert (row["reserved_bytes"], row["process_bytes"]) == (60, 400)
