"""The page of a paper's report: figure after figure what the paper says and what the replay shows, then the claims."""

from collections.abc import Mapping, Sequence

from vdnnsim.claims.markdown import claims_table, escape, reasons
from vdnnsim.claims.row import ClaimCount, ClaimRow, Verdict
from vdnnsim.claims.vdnn2016.figures.figure import PaperFigure


def page_text(figures: Sequence[PaperFigure], claim_rows: Sequence[ClaimRow], sections: Mapping[str, str]) -> str:
    """Return the page as Markdown.

    Args:
        figures: in the order in which to walk through them; their files lie beside the page.
        claim_rows: the checked numbers.
        sections: what else there is to say, ready Markdown by heading.
    """
    parts = [
        "# The figures of the vDNN paper, from simulation",
        _introduction(figures, claim_rows),
        *(part for figure in figures for part in _figure(figure)),
        "## Every number that the paper states",
        claims_table(claim_rows),
        *reasons(claim_rows),
        *(part for heading, text in sections.items() for part in (f"## {heading}", text.strip())),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(figures: Sequence[PaperFigure], rows: Sequence[ClaimRow]) -> str:
    missed = sum(row.verdict is Verdict.NOT_REPRODUCED for row in rows)
    return (
        f"{ClaimCount.of(rows)}, each with all of its numbers: {len(rows)}, of which {missed} are not met. Below are "
        f"{len(figures)} figures in the form of the paper's own, each with what the paper says, what the replay shows, "
        "and where and why they differ. What the paper shows in its pictures alone is not compared, for its numbers "
        "were not published. GB in the paper means GiB. Every picture has its numbers beside it as CSV, in SI units."
    )


def _figure(figure: PaperFigure) -> tuple[str, ...]:
    return (
        f"## {figure.name}",
        f"![{escape(figure.chart.title)}]({figure.stem}.png)",
        f"{escape(figure.caption)} Numbers: [{figure.stem}.csv]({figure.stem}.csv).",
        _listed("What the paper says", figure.paper_says),
        _listed("What the replay shows", figure.replay_shows),
        _listed("Where and why they differ", figure.differs),
    )


def _listed(heading: str, sentences: tuple[str, ...]) -> str:
    return "\n".join((f"**{heading}**", "", *(f"- {escape(sentence)}" for sentence in sentences)))
