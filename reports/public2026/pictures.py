"""The pictures of the scoreboard: step times, operators, peaks of memory."""

from collections.abc import Iterable, Sequence

from reports.charts import Axis, Chart, Cloud, Clouds, ErrorShares, Level, Panel, Slot, Tint
from vdnnsim.claims.public2026.measurements import COMPILED, ESTIMATED, MEMORY
from vdnnsim.claims.public2026.scoreboard import (
    UNDER,
    Errors,
    MemoryRow,
    OperatorRow,
    Scoreboard,
    TimeRow,
    errors_of,
)
from vdnnsim.dnn.workload import Mode
from vdnnsim.report.picture import Picture
from vdnnsim.report.scale import Scale, percent

_KINDS = ("training", "inference")
_AIM = 0.2


ESTIMATORS = {"faketensor": "FakeTensor", "xmem": "xMem", "dnnmem": "DNNMem", "schedtune": "SchedTune"}
"""Names of the fields of `Estimates`."""


def estimators(rows: Iterable[MemoryRow]) -> dict[str, Errors]:
    """Return the errors of all estimators on the rows that count, ours first."""
    counted = [each for each in rows if each.counts]
    found = {"vdnnsim": errors_of(counted)}
    for field, name in ESTIMATORS.items():
        asked = [each.row.error_of(field) for each in counted if getattr(each.row.estimates, field) is not None]
        if asked:
            found[f"{name}, as published"] = Errors(tuple(asked))
    return found


def draw_pictures(board: Scoreboard) -> tuple[Picture, ...]:
    """Draw what there are rows for."""
    from reports.bars import draw_bars
    from reports.error_pictures import draw_clouds, draw_error_shares

    pictures = []
    if times := [each for each in board.step_times if each.counts and each.row.series != COMPILED]:
        cards = clouds(times)
        pictures.append(Picture("step_times.png", cards.title, draw_clouds(cards)))
    if operators := [each for each in board.operator_times if each.counts]:
        chart = operator_bars(operators)
        pictures.append(Picture("operators.png", chart.title, draw_bars(chart)))
    for name, slide, series in (("peak_memory", error_shares, (MEMORY,)), ("estimators", all_estimators, ESTIMATED)):
        if peaks := [each for each in board.peaks if each.counts and each.row.series in series]:
            shares = slide(peaks)
            pictures.append(Picture(f"{name}.png", shares.title, draw_error_shares(shares)))
    return tuple(pictures)


def clouds(rows: Sequence[TimeRow]) -> Clouds:
    """Return the slide of step times, a diagonal for each card."""
    cards = dict.fromkeys(each.row.hardware for each in rows)
    return Clouds(
        f"An iteration as it was measured and as it is replayed: off by {_found(errors_of(rows))} in all",
        f"{len(rows)} rows that nothing was fitted on; on the line both are equal, below it the replay is too fast",
        tuple(_cloud(card, [each for each in rows if each.row.hardware == card]) for card in cards),
        _KINDS,
    )


def _cloud(card: str, rows: Sequence[TimeRow]) -> Cloud:
    pairs = [
        (int(each.row.setup.mode is Mode.INFERENCE), each.row.measured, each.simulated)
        for each in rows
        if each.simulated is not None
    ]
    return Cloud(card, f"{_found(errors_of(rows))}\n{len(rows)} rows", tuple(pairs))


def _found(errors: Errors) -> str:
    return f"{percent(errors.mean_absolute, 0)}, bias {100 * errors.mean:+.0f} %"


def operator_bars(rows: Sequence[OperatorRow]) -> Chart:
    """Return the slide of kinds of operators, a panel for each card."""
    within = sum(abs(each.error) <= _AIM for each in rows)
    cards = tuple(dict.fromkeys(each.row.hardware for each in rows))
    return Chart(
        f"{within} of {len(rows)} kinds of operators come within {percent(_AIM, 0)} of what was recorded",
        f"A training step of ResNet-50 on {' and '.join(cards)}: all operators of a kind, off by so much, up or down; "
        "an addition has no kernel backward",
        tuple(_panel([each for each in rows if each.row.hardware == card]) for card in cards),
    )


def _panel(rows: Sequence[OperatorRow]) -> Panel:
    kinds = tuple(dict.fromkeys(each.row.kind.value for each in rows))
    errors = {(each.row.kind.value, each.row.is_forward): abs(each.error) for each in rows}
    slots = (
        Slot.of(name, tint, [errors.get((kind, is_forward), 0.0) for kind in kinds])
        for name, tint, is_forward in (("forward", Tint.FORWARD, True), ("backward", Tint.BACKWARD, False))
    )
    return Panel(groups=kinds, slots=tuple(slots), left=Axis("error", Scale("%", 0.01, 0)), level=Level("aim", _AIM))


def error_shares(rows: Sequence[MemoryRow]) -> ErrorShares:
    """Return the slide of peaks of memory beside FakeTensor."""
    ours, fake = estimators(rows).values()
    return _shares(
        f"{percent(ours.share_under, 0)} of peaks come out too low here, {percent(fake.share_under, 0)} by FakeTensor",
        f"{len(rows)} trainings on an A100",
        rows,
    )


def all_estimators(rows: Sequence[MemoryRow]) -> ErrorShares:
    """Return the slide of peaks of memory beside xMem, DNNMem and SchedTune."""
    found = estimators(rows)
    ours, xmem = found["vdnnsim"], found["xMem, as published"]
    return _shares(
        f"Peaks are off by {percent(ours.median_absolute, 1)} in the median here, "
        f"by {percent(xmem.median_absolute, 1)} with xMem",
        f"{len(rows)} trainings of ConvNeXt-T and T5-small on an RTX 3060",
        rows,
    )


def _shares(title: str, what: str, rows: Sequence[MemoryRow]) -> ErrorShares:
    return ErrorShares(
        title,
        f"{what}; too low is more than 2 % below what the driver showed: such a run fails",
        tuple(
            (f"{name}: median {percent(each.median_absolute, 1)} off", each.values)
            for name, each in estimators(rows).items()
        ),
        UNDER,
        "too low",
    )
