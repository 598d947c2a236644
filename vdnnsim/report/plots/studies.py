"""The pictures of a study, each of the kind that its file chooses."""

from collections.abc import Sequence

from vdnnsim.report.plots.heat_map import heat_map_figure
from vdnnsim.report.plots.lines import lines_figure
from vdnnsim.report.plots.pareto import pareto_figure
from vdnnsim.report.plots.style import house_style, png
from vdnnsim.report.study_axis import StudyRow
from vdnnsim.report.study_picture import PictureKind, StudyPicture

_DRAW = {
    PictureKind.LINES: lines_figure,
    PictureKind.HEAT_MAP: heat_map_figure,
    PictureKind.PARETO: pareto_figure,
}


def draw_study_picture(rows: Sequence[StudyRow], picture: StudyPicture) -> bytes:
    """Draw one picture of a study as PNG; equal rows give equal bytes.

    Args:
        rows: of the whole study, those of failed points too.
        picture: what to draw of them.

    Raises:
        InputError: the rows have nothing that this picture could show.
    """
    with house_style():
        return png(_DRAW[picture.kind](rows, picture))
