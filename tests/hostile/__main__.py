"""`python -m tests.hostile 20000 --out reports/attack` tries so many inputs, and writes a table of outcomes."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, cycle, islice
from pathlib import Path

from tests.hostile.attack import MOST_BYTES, MOST_S, Outcome, attack
from tests.hostile.kinds import KINDS
from vdnnsim.files.atomic import replace_files
from vdnnsim.report import markdown
from vdnnsim.report.document import Heading, section

_HEADER = ("kind of file", "inputs", "read", "refused", "slowest, s", "in trouble")


def inputs(count: int) -> Iterator[tuple[int, int]]:
    """Yield kind and seed of so many inputs, kinds by their weight."""
    turns = cycle(chain.from_iterable([number] * kind.weight for number, kind in enumerate(KINDS)))
    seeds = Counter[int]()
    for number in islice(turns, count):
        yield number, seeds[number]
        seeds[number] += 1


def tried(one: tuple[int, int]) -> Outcome:
    return attack(KINDS[one[0]], one[1])


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the table of outcomes, and a list of violations."""
    rows = []
    for kind in KINDS:
        of_kind = [each for each in outcomes if each.kind == kind.name]
        read = sum(each.status == 0 and not each.trouble for each in of_kind)
        trouble = sum(bool(each.trouble) for each in of_kind)
        slowest = max((each.seconds for each in of_kind), default=0.0)
        row = (str(len(of_kind)), str(read), str(len(of_kind) - read - trouble), f"{slowest:.1f}", str(trouble))
        rows.append((kind.name, *row))
    what = (
        f"{len(outcomes)} hostile inputs, each a valid file changed at a few places or bytes, and a command that reads "
        f"it. It must end within {MOST_S} s of processor time and {MOST_BYTES // 2**30} GiB, with an exit status of 0, "
        "1 or 2, report errors in one line that names the file, and change none of its inputs."
    )
    return markdown.page(
        (
            Heading("Under attack", 1),
            what,
            markdown.table(_HEADER, rows),
            *section("What was in trouble?", list(_troubles(outcomes))),
            "`make attack` tries them anew; equal seeds make equal inputs.",
        )
    )


def _troubles(outcomes: Iterable[Outcome]) -> Iterator[str]:
    for each in outcomes:
        for trouble in each.trouble:
            yield f"{each.kind}, seed {each.seed}: {each.command}: {' '.join(trouble.split())[-300:]}"


def main() -> None:
    """Try inputs, and exit with 3 where one was in trouble."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("count", type=int)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.workers) as pool:
        outcomes = list(pool.map(tried, inputs(asked.count), chunksize=20))
    replace_files(asked.out, {"README.md": page(outcomes).encode()})
    for line in _troubles(outcomes):
        sys.stderr.write(f"{line}\n")
    sys.exit(3 if any(each.trouble for each in outcomes) else 0)


if __name__ == "__main__":
    main()
