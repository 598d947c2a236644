"""The only home of matplotlib: one function per picture, a result in, a figure out. Nothing touches pyplot."""

from dataclasses import dataclass

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.findings import comparison, headline, subject
from vdnnsim.report.plots.memory import memory_figure
from vdnnsim.report.plots.policies import policies_figure
from vdnnsim.report.plots.style import house_style, png
from vdnnsim.report.plots.timeline import timeline_figure, timeline_subject, timeline_title


@dataclass(frozen=True, slots=True)
class Picture:
    """One file to show: its name, what it says in one line, which is its title, and its content."""

    name: str
    description: str
    png: bytes


def draw_pictures(result: ScenarioResult) -> tuple[Picture, ...]:
    """Draw what a person would put on a slide, the comparison first."""
    shown, on_streams = subject(result), timeline_subject(result)
    with house_style():
        return (
            Picture("policies.png", comparison(result), png(policies_figure(result))),
            Picture("memory.png", headline(result, shown), png(memory_figure(result, shown))),
            Picture("timeline.png", timeline_title(result, on_streams), png(timeline_figure(result, on_streams))),
        )
