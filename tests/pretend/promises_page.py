"""What plans promise and steps take, as a page: `python -m tests.pretend.promises_page reports/apply`."""

import csv
import sys
from pathlib import Path

from tests.pretend.promises import PART, POLICY
from tests.pretend.rates_page import WHAT_IT_PROVES
from vdnnsim.report.document import Bullets, Heading
from vdnnsim.report.markdown import Ready, page, table
from vdnnsim.units import MIB

Row = dict[str, str]

_SETTING = (
    f"Each model is planned by `{POLICY}` within {PART:.0%} of what its plain loop allocates, before its first step, "
    "and again by `refit` after its fourth. Times are of forward and backward, by the clock of a pretended RTX 4090."
)
_KERNELS = (
    "kernels: what the promise would be off if kernels lasted as the profile's cost model says, and not as they were "
    "found to last on this GPU when the plan was made."
)
_HOST = "host: what the profile's host takes beyond its calls, which the pretended clock does not count."
_LOOP = (
    "loop: the rest, by which the step is off what its plan takes with this clock's kernels and its host: calls that "
    "operators make beyond one, running statistics that are copied where a normalization runs again, and kernels that "
    "integers steer, as of embeddings, which keep the profile's time."
)


def promises_page(rows: list[Row]) -> str:
    """Return the page."""
    planned = [row for row in rows if row["promised_s"]]
    return page(
        (
            Heading("What is promised before the first step", 1),
            Ready(
                "Written by `python -m tests.pretend.promises_page reports/apply` from `promises.csv`, which "
                "`python -m tests.pretend.promises` writes on a pretended RTX 4090."
            ),
            Ready(WHAT_IT_PROVES),
            Ready(_SETTING),
            Bullets(tuple(_findings(planned))),
            table(
                (
                    "model",
                    "limit, MiB",
                    "plain, ms",
                    "promised, ms",
                    "step 1",
                    "step 3",
                    "refit promised",
                    "refit step 3",
                ),
                [_cells(row) for row in rows],
                1,
            ),
            Heading("By cause"),
            Ready("Each as a part of what step 3 takes; below zero where more was promised."),
            Bullets((_KERNELS, _HOST, _LOOP)),
            table(
                ("model", "profile, ms", "promised, ms", "step 3, ms", "kernels", "host", "loop"), _parts(planned), 1
            ),
        )
    )


def _findings(rows: list[Row]) -> list[str]:
    def most(found: str, promised: str) -> str:
        return f"{max(abs(float(row[found]) / float(row[promised]) - 1) for row in rows if row[promised]):.1%}"

    steps = f"The first step is off its promise by at most {most('first_s', 'promised_s')}, the third by "
    third, again = most("third_s", "promised_s"), most("refit_third_s", "refit_promised_s")
    return [
        f"{steps}{third}; after `refit` it is {again}.",
        f"By the cost model of the profile alone it would be {most('third_s', 'profile_s')}.",
    ]


def _cells(row: Row) -> tuple[str, ...]:
    names = ("plain_s", "promised_s", "first_s", "third_s", "refit_promised_s", "refit_third_s")
    times = (f"{float(row[name]) * 1e3:.2f}" if row[name] else "no plan fits" for name in names)
    return (row["model"], f"{int(row['limit_bytes']) / MIB:.0f}", *times)


def _parts(rows: list[Row]) -> list[tuple[str, ...]]:
    found = []
    for row in rows:
        profile_s, promised_s, clock_s, third_s = (
            float(row[name]) for name in ("profile_s", "promised_s", "clock_s", "third_s")
        )
        causes = (promised_s - profile_s, clock_s - promised_s, third_s - clock_s)
        times = (f"{each * 1e3:.2f}" for each in (profile_s, promised_s, third_s))
        found.append((row["model"], *times, *(f"{each / third_s:+.1%}" for each in causes)))
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with (folder / "promises.csv").open() as file:
        read = [*csv.DictReader(file)]
    (folder / "promises.md").write_text(promises_page(read))
