"""The page of the report on Kim et al. (2018): what is replayed, what comes out, what does not and why."""

from collections.abc import Sequence

from vdnnsim.claims.claim import Verdict
from vdnnsim.claims.readings import ReadingRows
from vdnnsim.claims.report import claims_table, reasons
from vdnnsim.claims.row import ClaimCount, ClaimRow
from vdnnsim.claims.swap2018.runs import SwapReading
from vdnnsim.claims.swap2018.stated import TABLE_I, VGG, line_of_table_1
from vdnnsim.claims.swap2018.tables import Cell, table_1_text, throughput_text
from vdnnsim.report import markdown

Compared = Sequence[ReadingRows[SwapReading]]

_MATRIX = ("s-5", "s-6", "s-7", "s-8", "s-9", "s-10.vgg16", "s-10.inception_v3", "s-11")
"""The ratios of the text, of which a reading is judged first."""


def page_text(
    tables: Sequence[Cell], rows: Sequence[ClaimRow], compared: Compared, pictures: Sequence[tuple[str, str]]
) -> str:
    """Return the page as Markdown.

    Args:
        tables: Tables I to III, simulated.
        rows: the checked numbers.
        compared: what other readings give.
        pictures: file name and title of each.
    """
    parts = [
        "# Several GPUs that swap: the tables of Kim et al. (2018), from simulation",
        _introduction(rows),
        "## What is replayed",
        _REPLAYED,
        "## What comes out",
        _comes_out(tables),
        "## What does not, and why",
        _does_not(tables),
        "## Table I: largest batch and images per second on one Titan Xp",
        table_1_text([cell for cell in tables if cell.table == "Table I"]),
        *(
            part
            for name, title in (("Table II", "two P100"), ("Table III", "four P100"))
            for part in (f"## {name}: images per second of each of {title}", throughput_text(tables, name))
        ),
        "## Pictures",
        *(markdown.image(title, name) for name, title in pictures),
        "## Every number that the paper states, and every ratio of Tables II and III",
        claims_table(rows),
        *reasons(rows),
        "## What would other readings give?",
        _READINGS_INTRODUCTION,
        _matrix(rows, compared),
        markdown.definitions((each.reading.name, each.reading.question) for each in compared),
    ]
    return markdown.page(parts)


def _introduction(rows: Sequence[ClaimRow]) -> str:
    count = ClaimCount.of(rows)
    return (
        f"{count}, each with all of its numbers; of the {count.numbers} ratios of Tables II and III, {count.met} "
        "come within 10 %. Kernel times rest on public measurements of single kernels (DeepBench), links on public "
        "measurements of copies; no number of this paper went into a profile. Two numbers of the paper are taken: how "
        "fast two and four P100s are without swap in the first row of Tables II and III, slower than those kernels, "
        "to which all kernels are stretched; what is checked are ratios, which are not in it. Two things that the "
        "paper does not state were chosen with its numbers in view: x, an integer, and which convolution algorithms "
        "its TensorFlow tries, of which there is public evidence. The last section shows what others give: the ratios "
        "of the tables come out with x = 2 as well and with any algorithms, and fewer of them with x = 1, 4 or 5 or at "
        "DeepBench's own speed."
    )


_REPLAYED = """\
The paper extends vDNN to several GPUs in TensorFlow. Two GPUs behind one PCIe switch that swap the same layers at the
same time get half the bandwidth each; so the proposal lets them swap different layers, and searches for the moment at
which each map must come back. Here:

- `none(tensorflow)`: no swap. Every map is allocated when it is written and released when nothing reads it any more.
- `swap(tensorflow, interval=x)`: the original. All GPUs swap the output of every x-th CONV layer, synchronize at each
  layer that copies, and fetch a map during the backward just before the one that reads it.
- `staggered_swap(tensorflow, interval=x)`: the proposal. The i-th GPU of a switch begins with the i-th CONV layer;
  nothing synchronizes layers; triggers are found by trial iterations, as in III-C.
- `tensorflow`: of the convolution algorithms that TensorFlow before 1.3 tries by default, the fastest. It leaves out
  Winograd's that is not fused (its issue 9339), and workspaces above 4 GiB. The paper names no version.
- On the P100s every kernel takes longer by one factor, by which GPUs without swap are as fast as in the first row of
  Table II or III.
- Gradients are added up by the CPU, beside backward, as IV-B says. GPUs share links max-min fairly.

`vdnnsim run` of scenarios/swap2018_1gpu.yaml, swap2018_2gpus.yaml and swap2018_4gpus.yaml shows the same policies, at
DeepBench's speed."""

_READINGS_INTRODUCTION = (
    "Each row changes one thing. Bold is within the tolerance of the claim, a dash means that a policy refuses. The "
    "last column counts the ratios of Tables II and III that come within 10 %. readings.csv has every number."
)


def _comes_out(tables: Sequence[Cell]) -> str:
    none, swap, staggered = _by_policy(tables, "Table II", 120)
    return (
        f"Two GPUs lose {1 - swap.images_per_s / none.images_per_s:.0%} of their speed when they swap as vDNN would, "
        f"and {1 - staggered.images_per_s / none.images_per_s:.1%} when swaps are staggered and triggers are searched "
        "for; in the paper 33 % and 2.9 %. Of the two halves of the proposal the triggers do more: without the search "
        "nearly a third of the gain is gone, without staggering little of it (`swap_in: just_in_time` and `stagger: "
        "false` below). "
        "The largest batch grows as in the paper on both machines, which follows from what stays on the GPU and from "
        "no duration."
    )


def _does_not(tables: Sequence[Cell]) -> str:
    vgg = [cell for cell in tables if cell.table == "Table I" and cell.network == VGG]
    factors = [cell.batch_size / TABLE_I[cell.network, cell.policy][0] for cell in vgg]
    per_image_s, rest_s = line_of_table_1()
    return (
        f"- Absolute batches (s-1 to s-4). Batches of VGG come out {factors[0]:.2f} and {factors[1]:.2f} times the "
        "paper's, without and with swap: the same factor, two, as if TensorFlow held each output of a CONV layer "
        "twice, before and after its ReLU, where the replay holds one map in place. That is a guess; the paper does "
        "not say what its TensorFlow holds. So the replay still fits where the paper runs out of memory, and only "
        "ratios of batches can be compared.\n"
        "- Absolute speeds. By the paper's own Table I, if its two rows lie on one line, an iteration of VGG takes "
        f"{per_image_s * 1e3:.1f} ms an image and {rest_s:.2f} s besides; of Inception-v3, with a sixth of the "
        "weights, 0.08 s. That is time in proportion to weights, as an update of variables on the CPU would take, "
        "outside every kernel and copy that the replay knows. Whatever it is, it also hides copies: with the speed of "
        "DeepBench's kernels swap loses more than in the paper (`kernel times of DeepBench` below).\n"
        "- Why four GPUs are slower than two. Without swap the paper's GPUs run at "
        f"{66.53 / 83.56:.2f} of the speed that two have, at a batch a twelfth smaller; here nothing that links carry "
        "delays a kernel without swap, so the speed of each table is taken from it. The paper lays the loss to PCIe, "
        "of which each GPU has half as much with four; but each switch has two GPUs in both cases, and if all four "
        "shared one port of the host, swap would lose far more than the paper measures (`one port for both switches` "
        "below)."
    )


def _by_policy(tables: Sequence[Cell], table: str, batch_size: int) -> tuple[Cell, Cell, Cell]:
    none, swap, staggered = (cell for cell in tables if cell.table == table and cell.batch_size == batch_size)
    return none, swap, staggered


def _matrix(rows: Sequence[ClaimRow], compared: Compared) -> str:
    shown = [row for row in rows if row.id in _MATRIX]
    header = ("reading", *(row.id for row in shown), "t-2 and t-3")
    paper = ("paper", *(row.expected for row in shown), "")
    lines = [("default", rows), *((markdown.code(each.reading.name), each.rows) for each in compared)]
    return markdown.table(header, (paper, *((name, *_line(found, shown)) for name, found in lines)))


def _line(rows: Sequence[ClaimRow | None], shown: Sequence[ClaimRow]) -> list[str]:
    found = {row.id: row for row in rows if row is not None}
    count = ClaimCount.of(list(found.values()))
    return [*(_cell(found.get(each.id)) for each in shown), f"{count.met} of {count.numbers}"]


def _cell(row: ClaimRow | None) -> str:
    if row is None:
        return "-"
    return markdown.bold(row.simulated) if row.verdict is Verdict.REPRODUCED else row.simulated
