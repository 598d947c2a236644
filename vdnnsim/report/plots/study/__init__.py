"""The pictures of a study, each of the kind that its file chooses."""

from collections.abc import Sequence

from vdnnsim.report.plots.study.curves import lines_figure, pareto_figure
from vdnnsim.report.plots.study.heat_map import heat_map_figure
from vdnnsim.report.plots.style import house_style, png
from vdnnsim.report.study_picture import PictureKind, StudyCells, StudyPicture

_DRAW = {PictureKind.LINES: lines_figure, PictureKind.HEAT_MAP: heat_map_figure, PictureKind.PARETO: pareto_figure}


def draw_study_picture(rows: Sequence[StudyCells], picture: StudyPicture) -> bytes:
    """Draw one picture of a study, of all of its rows, as PNG; equal rows give equal bytes.

    Raises:
        InputError: the rows have nothing that this picture could show.
    """
    with house_style():
        return png(_DRAW[picture.kind](rows, picture))
