"""What the tables of trials say, as a page: `python -m tests.pretend.trials_page reports/validation/pretended`."""

import csv
import sys
from pathlib import Path
from statistics import median

from calibration.pretend.card import ASSUMED_CONTEXT_BYTES
from tests.pretend.rates_page import WHAT_IT_PROVES
from tests.pretend.trials import off
from vdnnsim.report.document import Bullets, Heading
from vdnnsim.report.markdown import Ready, escape, page, table
from vdnnsim.units import MIB

_SHOWN = (
    "script",
    "card",
    "allocated, MiB",
    "reserved, MiB",
    "driver, MiB",
    "steady from step",
    "predicted step, ms",
    "simulated allocated",
    "simulated reserved",
    "note",
)
_WHY_RESERVED = (
    "Of cuDNN's kernels for a convolution, the simulator takes the fastest by the profile, PyTorch the first that "
    "cuDNN's heuristics name. Their workspaces differ, and with them what is reserved, by up to a sixth; for "
    "VGG-16 (128) in what is allocated, too."
)
_ASSUMED = (
    "Assumed of the training script of timm: its defaults, SGD with Nesterov momentum, float32 with TF32, channels "
    "first, labels smoothed, a batch prefetched, the image size of each model's configuration. Not done: the trial of "
    "all of cuDNN's algorithms (`--benchmark` of the script here), which takes minutes a network on a CPU."
)


def trials_page(folder: Path) -> str:
    """Return what the tables of a folder say, as Markdown."""
    published = _read(folder / "published.csv")
    return page(
        (
            Heading("Scripts on pretended cards", 1),
            Ready(WHAT_IT_PROVES),
            Heading("PyTorch's allocator beside `memory_model: pytorch`: random traces"),
            _as_it_is(folder / "random_traces.csv"),
            Heading("The same for plans of all policies, and races between their streams"),
            _as_it_is(folder / "plans.csv"),
            Heading("Training scripts as users write them"),
            _trial_table(folder / "scripts.csv"),
            Heading("What nvidia-smi would show on an A100 of 40 GB, training with Adam"),
            _trial_table(folder / "networks.csv"),
            escape(_WHY_RESERVED),
            Heading("Beside what others measured"),
            escape(_ASSUMED),
            Bullets(tuple(_findings(published))),
            table(
                ("model", "batch", "published, MiB", "driver, MiB", "off", "allocated, MiB", "reserved, MiB"),
                [
                    (
                        row["model"],
                        row["batch"],
                        row["published_driver_mib"],
                        row["driver_mib"] if row["outcome"] == "ends" else row["outcome"],
                        f"{float(row['driver_off']):+.0%}" if row["outcome"] == "ends" else "",
                        row["allocated_mib"],
                        row["reserved_mib"],
                    )
                    for row in published
                ],
                1,
            ),
        )
    )


def _read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return [*csv.DictReader(file)]


def _as_it_is(path: Path) -> Ready:
    rows = _read(path)
    return table(tuple(rows[0]), [tuple(row.values()) for row in rows], 1)


def _trial_table(path: Path) -> Ready:
    def share(text: str) -> str:
        return f"{float(text):+.1%}" if text else ""

    return table(
        _SHOWN,
        [
            (
                row["script"],
                row["hardware"],
                *(str(int(row[name]) >> 20) for name in ("allocated_bytes", "reserved_bytes", "driver_bytes")),
                row["steady_from_step"] if row["outcome"] == "ends" else row["outcome"],
                f"{1e3 * float(row['predicted_step_s']):.1f}",
                share(row["allocated_off"]),
                share(row["reserved_off"]),
                row["reason"],
            )
            for row in _read(path)
        ],
        2,
    )


def _findings(published: list[dict[str, str]]) -> list[str]:
    """Return what the rows that ended say together; a constant that would explain them is said, and never used."""
    ended = [row for row in published if row["outcome"] == "ends"]
    theirs = [int(row["published_driver_mib"]) for row in ended]
    ours = [int(row["driver_mib"]) for row in ended]
    least = sorted(zip(theirs, ours, strict=True))[: len(ended) // 2]
    more = median(one - another for one, another in least)
    error = median(abs(off(one, another)) for one, another in zip(ours, theirs, strict=True))
    shifted = median(abs(off(one + round(more), another)) for one, another in zip(ours, theirs, strict=True))
    unfit = [f"{row['model']} ({row['batch']})" for row in published if row["outcome"] != "ends"]
    said = (
        f"{len(ended)} of {len(published)} train to their end; the driver's view is off by {error:.0%} in the median, "
        "almost always too small."
    )
    context = (
        f"The smaller half of them, whatever the network, lacks {more:.0f} MiB in the median. That is no tensor: with "
        f"the context that is assumed here, a context of {more + ASSUMED_CONTEXT_BYTES / MIB:.0f} MiB, as of a CUDA "
        f"that loads all kernels at its start, would leave {shifted:.0%} in the median. Nobody published which it was, "
        "so nothing here was set by it."
    )
    larger = (
        f"Do not fit here and were published: {', '.join(unfit) or 'none'}; today's timm configures some models with "
        "larger images than it did."
    )
    return [said, context, larger]


if __name__ == "__main__":
    tables = Path(sys.argv[1])
    (tables / "trials.md").write_text(trials_page(tables))
