"""All pictures, the only modules that import matplotlib: a function from a result to a figure, without pyplot."""

from collections.abc import Iterator
from typing import Final

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.operations import Stream
from vdnnsim.report.findings import comparison, headline
from vdnnsim.report.labels import file_names
from vdnnsim.report.picture import Picture
from vdnnsim.report.plots.iteration.memory import memory_figure
from vdnnsim.report.plots.iteration.several_gpus import gpus_figure, gpus_title, links_figure, links_title
from vdnnsim.report.plots.iteration.timeline import timeline_figure, timeline_subject, timeline_title
from vdnnsim.report.plots.policies import policies_figure
from vdnnsim.report.plots.style import house_style, png

_LEAST_WAIT: Final = 0.0005
"""Share of an iteration below which waits are 0.0 %."""


def draw_pictures(result: ScenarioResult) -> tuple[Picture, ...]:
    """Draw the pictures of a run, the comparison of several policies first."""
    shown, on_streams = result.subject, timeline_subject(result)
    with house_style():
        alone = (
            *(
                [Picture("policies.png", comparison(result), png(policies_figure(result)))]
                if len(result.slowest) > 1
                else []
            ),
            Picture("memory.png", headline(result, shown), png(memory_figure(result, shown))),
            *(
                [Picture("timeline.png", timeline_title(result, on_streams), png(timeline_figure(result, on_streams)))]
                if _has_waits(on_streams)
                else []
            ),
        )
        return alone if result.gpus == 1 else (*alone, *_of_several_gpus(result))


def _has_waits(row: PolicyResult) -> bool:
    """Whether a timeline has more to show than one stream that is always busy."""
    is_alone = not any(row.trace.spans_on(each) for each in Stream if each is not Stream.COMPUTE)
    return not is_alone or row.metrics.stall_s >= _LEAST_WAIT * row.metrics.iteration_s


def _of_several_gpus(result: ScenarioResult) -> Iterator[Picture]:
    """Yield GPUs and links of each policy that offloads, or else of the subject."""
    copying = [rows for rows in result.by_policy if any(row.trace.spans_on(Stream.MEMORY) for row in rows)]
    shown = copying or [rows for rows in result.by_policy if result.subject in rows]
    policies = [rows[0].policy for rows in shown]
    for name, rows in zip(file_names("gpus", policies, ".png"), shown, strict=True):
        yield Picture(name, gpus_title(result, rows), png(gpus_figure(result, rows)))
    for name, rows in zip(file_names("links", policies, ".png"), shown, strict=True):
        yield Picture(name, links_title(result, rows), png(links_figure(result, rows)))
