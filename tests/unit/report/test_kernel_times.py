import json
from dataclasses import replace

from tests.unit.report.test_table import printed
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.report.kernel_times import kernel_times, peaks_note
from vdnnsim.report.manifest import manifest_text
from vdnnsim.report.markdown import markdown_text
from vdnnsim.report.plots.front import comparison_figure
from vdnnsim.report.plots.policies import policies_figure
from vdnnsim.report.plots.scaling import scaling_figure
from vdnnsim.report.plots.timeline import timeline_figure
from vdnnsim.report.table import result_table

PEAKS = "Kernel times: 2 of 2 from datasheet peaks, which no kernel reaches; copies weigh more here than on the card"


def kernels(*origins: Origin) -> KernelOrigins:
    return KernelOrigins({(layer, Phase.FORWARD, "only", 1): origin for layer, origin in enumerate(origins)})


def test_times_of_one_origin() -> None:
    """What was measured, or fitted to what was, needs no caveat."""
    assert kernel_times(kernels(Origin.DATASHEET, Origin.DATASHEET)) == (PEAKS,)
    assert kernel_times(kernels(Origin.FITTED)) == ("Kernel times: 1 of 1 fitted to measurements",)
    assert kernel_times(kernels(Origin.MEASURED)) == ("Kernel times: 1 of 1 measured",)
    assert kernel_times(KernelOrigins()) == ()


def test_times_of_several_origins_the_best_known_first() -> None:
    peak, fitted, measured = Origin.DATASHEET, Origin.FITTED, Origin.MEASURED
    (line,) = kernel_times(kernels(peak, fitted, measured, measured))
    assert line == (
        "Kernel times: 2 measured, 1 fitted to measurements, 1 from datasheet peaks, which no kernel reaches; copies "
        "weigh more here than on the card"
    )
    assert kernel_times(kernels(fitted, measured)) == ("Kernel times: 1 measured, 1 fitted to measurements",)


def test_a_table_without_the_element_type_is_named() -> None:
    lacking = replace(kernels(Origin.FITTED), gap="toy.csv times no kernel in bfloat16")
    assert kernel_times(lacking)[1:] == ("Kernel table: toy.csv times no kernel in bfloat16",)


def test_terminal_report_and_manifest_say_it(result: ScenarioResult) -> None:
    stated = replace(result, kernels=kernels(Origin.DATASHEET, Origin.DATASHEET))
    assert f"- {PEAKS}" in printed(result_table(stated), width=400)
    assert f"{PEAKS}." in markdown_text(stated, {}, ()).splitlines()
    manifest = json.loads(manifest_text(stated, None, ()))
    assert (manifest["kernel_times"], manifest["kernel_table_gap"]) == ({"datasheet": 2}, None)


def test_pictures_of_times_say_it_in_their_second_line(result: ScenarioResult, move: PolicyResult) -> None:
    mixed, peaks = kernels(Origin.DATASHEET, Origin.FITTED), kernels(Origin.DATASHEET)
    assert peaks_note(mixed) == "; some kernel times are datasheet peaks"
    assert peaks_note(kernels(Origin.FITTED, Origin.MEASURED)) == ""
    stated = replace(result, kernels=peaks)
    figures = (
        policies_figure(stated),
        timeline_figure(stated, move),
        scaling_figure([stated]),
        comparison_figure(Comparison(stated, ())),
    )
    for figure in figures:
        assert figure.texts[1].get_text().endswith("; kernel times are datasheet peaks")
