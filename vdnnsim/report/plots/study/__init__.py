"""Pictures of a study: lines, heat maps and Pareto fronts."""

from collections.abc import Sequence

from vdnnsim.report.plots.study.curves import lines_figure, pareto_figure
from vdnnsim.report.plots.study.heat_map import heat_map_figure
from vdnnsim.report.plots.style import house_style, png
from vdnnsim.report.study_picture import PictureKind, StudyCells, StudyPicture

_DRAW = {PictureKind.LINES: lines_figure, PictureKind.HEAT_MAP: heat_map_figure, PictureKind.PARETO: pareto_figure}


def draw_study_picture(rows: Sequence[StudyCells], picture: StudyPicture) -> bytes:
    """Draw a picture of the rows of a study as PNG, or raise InputError where none can be shown."""
    with house_style():
        return png(_DRAW[picture.kind](rows, picture))
