"""The folder of a study: `results.csv`, pictures, and the manifest `run.json`; equal studies give equal bytes."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from vdnnsim.cost.trust import Basis, basis_of
from vdnnsim.errors import ProfileError, StudyError
from vdnnsim.files.atomic import Content
from vdnnsim.hardware.profile import find_profile, load_profile
from vdnnsim.report.folder import Writer, versions, write_drawn
from vdnnsim.report.study_picture import KERNEL_TIMES, StudyCells, shows
from vdnnsim.study.points.resolve import shown
from vdnnsim.study.results import StudyRow, progress_of, results_csv, study_rows, table_header, table_row
from vdnnsim.study.store import Store
from vdnnsim.study.study import Study
from vdnnsim.study.version import covered_digests, model_version

MOST_DRAWN: Final = 20_000
"""Points of one picture; more would be a black slide."""

SWEEP_WRITER: Final = Writer.of("sweep", ("results.csv", "run.json"), "study", "axes", "files", others=r"\w+\.png")


def file_names(study: Study) -> tuple[str, ...]:
    return (*SWEEP_WRITER.files, *(f"{picture.name}.png" for picture in study.pictures))


def write_report(study: Study, store: Store, folder: Path) -> None:
    """Write the files of a study, all but the pictures also where one of these cannot be drawn.

    Raises:
        InputError: a picture has no points or too many, or two points share one place.
        OutputError: the folder cannot be written, or has other files.
    """
    write_drawn(folder, partial(_pictures, study, store), partial(_files, study, store), SWEEP_WRITER)


def _files(study: Study, store: Store, pictures: Mapping[str, bytes]) -> dict[str, Content]:
    manifest = _manifest(study, store, (*SWEEP_WRITER.files, *pictures))
    return {"results.csv": results_csv(study, store), **pictures, SWEEP_WRITER.manifest: manifest}


def _manifest(study: Study, store: Store, names: Iterable[str]) -> bytes:
    progress = progress_of(study, store)
    content = {
        "format_version": SWEEP_WRITER.version,
        "versions": versions(),
        "model": model_version(),
        "model_covers": covered_digests(),
        "inputs": [{"name": name, "sha256": sha256} for name, sha256 in _inputs(study).items()],
        "seed": None,  # nothing is random
        "study": study.name,
        "axes": {axis.key: [shown(value) for value in axis.values] for axis in study.axes},
        "points": {"done": progress.done, "failed": progress.failed, "missing": progress.missing},
        "files": sorted(names),
    }
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _inputs(study: Study) -> dict[str, str]:
    """Return name and SHA-256 of the files that a study reads, profiles of its axis included."""
    inputs = dict(study.sources)
    for axis in study.axes:
        if axis.key == "hardware":
            for name in axis.values:
                assert isinstance(name, str), "hardware is named"
                with suppress(ProfileError):  # is the outcome of its points
                    inputs |= load_profile(find_profile(name, Path(study.folder))).sources
    return inputs


def _pictures(study: Study, store: Store) -> dict[str, bytes]:
    if not study.pictures:
        return {}
    from vdnnsim.report.plots.study import draw_study_picture

    header = table_header(study)
    drawn: dict[str, list[StudyCells]] = {picture.name: [] for picture in study.pictures}
    for finished in study_rows(study, store):
        if finished.outcome is None:
            continue
        row = dict(zip(header, table_row(study, finished), strict=True)) | {KERNEL_TIMES: _basis(finished)}
        for picture in study.pictures:
            if shows(picture, row):
                drawn[picture.name].append(row)
            if len(drawn[picture.name]) > MOST_DRAWN:
                found = f"found more than {MOST_DRAWN} points to draw, expected fewer; choose with where"
                raise StudyError(f"picture {picture.name!r}: {found}")
    return {f"{picture.name}.png": draw_study_picture(drawn[picture.name], picture) for picture in study.pictures}


def _basis(row: StudyRow) -> str:
    """Return the basis of the kernel times of a point; scaled by a compute speed they are not measured."""
    scenario = row.resolved.scenario
    if scenario is None:
        return ""
    basis = basis_of(scenario.server)
    return (Basis.CARRIED_OVER if row.resolved.compute_speed != 1 and basis is not Basis.DATASHEET else basis).value
