"""Runs drawn loops with drawn plans, and shows the smallest of each that is not what it is without a plan.

Of a loop that PyTorch does not repeat nothing can be said; it is shown as it was drawn.

python -m tests.apply.generated 10000               # those of the first seeds
python -m tests.apply.generated 1 --from 4711       # that of one
python -m tests.apply.generated 300 --from 1000000  # with later blocks and later policies among them
python -m tests.apply.generated 300 --from 2000000  # with parts that have a state, too
python -m tests.apply.generated 300 --from 4000000  # scripts, whose losses are made by several calls
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.apply.generated.drawn import LOOPS, drawn_by
from tests.apply.generated.judging import judge, judged
from tests.apply.generated.shrinking import shrunk


def main() -> None:
    """Try loops, and exit with 3 where one was in trouble."""
    parser = argparse.ArgumentParser(prog="python -m tests.apply.generated")
    parser.add_argument("count", type=int)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--as-drawn", action="store_true", help="show loops in trouble as they were drawn")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.count)
    parts = [seeds[at : at + LOOPS] for at in range(0, len(seeds), LOOPS)]
    found, troubled = Counter[str](), 0
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        for seed, outcome in (each for part in pool.map(judged, parts) for each in part):
            found.update(outcome.counts)
            if outcome.unrepeated:
                sys.stdout.write(f"\nseed {seed}, without a plan\n{drawn_by(seed)}\n{outcome.unrepeated}\n")
            if outcome.trouble:
                troubled += 1
                drawn = drawn_by(seed)
                drawn = drawn if asked.as_drawn else shrunk(drawn, outcome.trouble)
                sys.stdout.write(
                    f"\nseed {seed}\n{drawn}\n{outcome.trouble if asked.as_drawn else judge(drawn).trouble}\n"
                )
                sys.stdout.flush()
    sys.stdout.write("".join(f"{number:8,} {what}\n" for what, number in sorted(found.items())))
    sys.exit(3 if troubled else 0)


if __name__ == "__main__":
    main()
