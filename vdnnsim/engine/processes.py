"""Worker processes that share questions, and garbage collection tuned for replays."""

import gc
from collections.abc import Callable, Iterable
from typing import TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


def collect_rarely() -> None:
    """Let this process look for cycles only now and then.

    Plans and traces are hundreds of thousands of objects that live to the end; looking at all of them again and again
    took two fifths of the time of a replay.
    """
    gc.set_threshold(200_000, 50, 100)


def on_all_cores(
    answer: Callable[[Question], Answer], questions: Iterable[Question], progress: Callable[[str], object] | None = None
) -> list[Answer]:
    """Answer questions side by side, in their order; `progress` receives a line on how many are answered."""
    # Not at the top: who only collects rarely, as `--help` does, needs no processes.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    asked = list(questions)
    answers: list[Answer] = []
    # Fresh processes, for a fork copies the locks of threads that libraries may have started.
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=collect_rarely) as pool:
        for each in pool.map(answer, asked):
            answers.append(each)
            if progress is not None:
                progress(f"{len(answers)} of {len(asked)}")
    return answers
