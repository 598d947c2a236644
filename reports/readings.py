"""Claims of a paper under other readings, and the rows that each changes.

A reading is a choice that the text leaves open: an option of a policy, of the scenario, of the machine or of a metric.
An alternative changes one option.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from vdnnsim.claims.check import ClaimRow, Metrics
from vdnnsim.claims.claim import Claim
from vdnnsim.engine.garbage_collection import collect_rarely
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.report.result_table import csv_text


@dataclass(frozen=True)
class PaperReading:
    """A choice that a paper leaves open; without a name the default one.

    Attributes:
        question: what the paper leaves open, and the default.
        options: of the runs of a policy, by its name.
    """

    name: str = ""
    question: str = ""
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    memory_model: MemoryModel = MemoryModel.IDEAL


Reading = TypeVar("Reading", bound=PaperReading)
Runs = TypeVar("Runs")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


def read_readings(paper: str, kind: type[Reading]) -> tuple[Reading, ...]:
    """Return the alternatives of a paper from `readings.yaml` in its folder, in the order of its page."""
    path = Path(__file__).parent / paper / "readings.yaml"
    return msgspec.yaml.decode(path.read_bytes(), type=tuple[kind, ...])  # type: ignore[valid-type]  # known at run time


def checked(metrics: Metrics[Runs], claim: Claim, runs: Runs, hardware: str) -> ClaimRow | None:
    """Return the row of a claim; None if a policy refuses, as page migration refuses memory with addresses."""
    try:
        return metrics.check(claim, runs, hardware)
    except PolicyError:
        return None


@dataclass(frozen=True, slots=True)
class ReadingEffect:
    """A row that a reading changes, with its default."""

    default: ClaimRow
    alternative: ClaimRow

    @property
    def turns(self) -> bool:
        """Whether the verdict changes."""
        return self.default.verdict is not self.alternative.verdict


@dataclass(frozen=True, slots=True)
class ReadingRows(Generic[Reading]):
    """All claims under one reading; None where a policy refuses it."""

    reading: Reading
    rows: tuple[ClaimRow | None, ...]

    def effects(self, default: Sequence[ClaimRow]) -> tuple[ReadingEffect, ...]:
        """Return the rows whose shown value it changes."""
        pairs = zip(default, self.rows, strict=True)
        return tuple(ReadingEffect(a, b) for a, b in pairs if b is not None and a.simulated != b.simulated)


def effects_csv(compared: Iterable[ReadingRows[Reading]], default: Sequence[ClaimRow]) -> str:
    """Return every changed row as CSV."""
    columns = ("reading", "id", "metric", "expected", "default", "alternative", "alternative_verdict")
    cells = (
        (
            each.reading.name,
            effect.default.id,
            effect.alternative.metric,
            effect.default.expected,
            effect.default.simulated,
            effect.alternative.simulated,
            effect.alternative.verdict.value,
        )
        for each in compared
        for effect in each.effects(default)
    )
    return csv_text(columns, cells)


def on_all_cores(
    answer: Callable[[Question], Answer], questions: Iterable[Question], progress: Callable[[str], object] | None = None
) -> list[Answer]:
    """Return the answers to questions in order, computed in parallel; `progress` receives a line on each."""
    asked = list(questions)
    answers: list[Answer] = []
    # A fork would copy locks of threads that libraries may have started.
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=collect_rarely) as pool:
        for each in pool.map(answer, asked):
            answers.append(each)
            if progress is not None:
                progress(f"{len(answers)} of {len(asked)}")
    return answers
