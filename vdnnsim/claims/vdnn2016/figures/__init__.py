"""The figures of the vDNN paper from simulation, each in the paper's own form, with its numbers as CSV."""

from vdnnsim.claims.report import SimulatedFigure
from vdnnsim.claims.vdnn2016.figures.figure import Builder
from vdnnsim.claims.vdnn2016.figures.layers import figure_05, figure_06
from vdnnsim.claims.vdnn2016.figures.memory import figure_11
from vdnnsim.claims.vdnn2016.figures.motivation import figure_01, figure_04
from vdnnsim.claims.vdnn2016.figures.offload import figure_12, figure_15
from vdnnsim.claims.vdnn2016.figures.performance import figure_13, figure_14
from vdnnsim.claims.vdnn2016.figures.power import power_section
from vdnnsim.claims.vdnn2016.runs import VdnnRuns

BUILDERS: tuple[Builder, ...] = (
    figure_01,
    figure_04,
    figure_05,
    figure_06,
    figure_11,
    figure_12,
    figure_13,
    figure_14,
    figure_15,
    power_section,
)
"""In the order of the paper."""


def paper_figures(runs: VdnnRuns) -> tuple[SimulatedFigure, ...]:
    """Return all figures; replays that several need are run once."""
    return tuple(build(runs) for build in BUILDERS)
