import io

from rich.console import Console, RenderableType

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.document import Document, Table
from vdnnsim.report.run.page import result_table
from vdnnsim.report.terminal import rendered


def printed(table: Document | Table | RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(rendered(table))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_table_in_eighty_columns(result: ScenarioResult) -> None:
    assert printed(result_table(result))[:14] == [
        "toy, batch 1, float16, training on toy GPU with 1000 B (ideal memory model)",
        "No update of the weights is counted: optimizer none",
        "",
        "               time  images  max mem  mean mem  offload  stalled   speed/",
        "policy   fits     s   per s        B         B        B  of time   oracle",
        "move(m)  yes   8.00   0.125       60        31       10   50.0 %   75.0 %",
        "keep(p)  NO *  6.00   0.167     1020      1020        0    0.0 %  100.0 %",
        "dyn      yes   8.00   0.125       60        31       10   50.0 %   75.0 %",
        "",
        "Oracular baseline: base(p), which keeps all in GPU memory, on this GPU with",
        "unlimited memory",
        "(p): the fastest algorithm of each convolution; (m): the one with the least",
        "workspace",
        "* does not fit; its numbers are of a replay on a GPU without a capacity",
    ]


def test_findings_are_printed_below_the_table(result: ScenarioResult) -> None:
    text = "\n".join(printed(result_table(result), width=400)[11:])
    assert "- Of 3 policies" in text
    assert "- keep(p): backward weights of conv1 asked for 990 B" in text
    assert "- dyn settled on all(m) after 2 passes" in text


def test_a_narrow_terminal_keeps_the_labels(result: ScenarioResult) -> None:
    """The columns take 7 + 4 + 4 + 6 + 7 + 8 + 7 + 7 + 7 = 57 characters and 8 gaps of 2, 73 in all.

    Without the mean of 8 and the offload of 7 and their gaps they take 54.
    """
    lines = printed(result_table(result), width=60)
    assert lines[4:7] == [
        "               time  images  max mem  stalled   speed/",
        "policy   fits     s   per s        B  of time   oracle",
        "move(m)  yes   8.00   0.125       60   50.0 %   75.0 %",
    ]
    assert lines[9] == "too narrow for mean memory, offloaded; results.csv has all"
    assert any("  mean mem  " in line for line in printed(result_table(result), width=73))
    assert not any("  mean mem  " in line for line in printed(result_table(result), width=72))
