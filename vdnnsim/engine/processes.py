"""A pool of worker processes, and garbage collection tuned for replays."""

import gc
from collections.abc import Callable, Iterable
from typing import TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


def collect_rarely() -> None:
    """Run the cyclic garbage collector rarely: it took two fifths of a replay, whose objects live to the end."""
    gc.set_threshold(200_000, 50, 100)


def on_all_cores(
    answer: Callable[[Question], Answer], questions: Iterable[Question], progress: Callable[[str], object] | None = None
) -> list[Answer]:
    """Return the answers to questions in order, computed in parallel; `progress` receives a line on each."""
    # Imported late for the speed of `--help`.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    asked = list(questions)
    answers: list[Answer] = []
    # A fork would copy locks of threads that libraries may have started.
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=collect_rarely) as pool:
        for each in pool.map(answer, asked):
            answers.append(each)
            if progress is not None:
                progress(f"{len(answers)} of {len(asked)}")
    return answers
