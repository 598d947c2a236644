import io
from dataclasses import replace

from rich.console import Console, RenderableType

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.document import Document, Table
from vdnnsim.report.run.page import result_table
from vdnnsim.report.terminal import rendered, unpadded


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
        "               time  images  allocated  mean  offload  stalled     speed/",
        "policy   fits     s   per s          B     B        B  of time  unlimited",
        "move(m)  yes   8.00   0.125         60    31       10   50.0 %     75.0 %",
        "keep(p)  NO *  6.00   0.167       1020  1020        0    0.0 %    100.0 %",
        "dyn      yes   8.00   0.125         60    31       10   50.0 %     75.0 %",
        "",
        "Speed: compared with this GPU with unlimited memory, where base(p) keeps",
        "everything",
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
    """The columns take 7 + 4 + 4 + 6 + 9 + 4 + 7 + 7 + 9 = 57 characters and 8 gaps of 2, 73 in all.

    Without the mean of 4 and the offload of 7 and their gaps they take 58. Speed goes before memory.
    """
    lines = printed(result_table(result), width=60)
    assert lines[4:7] == [
        "               time  images  allocated  stalled     speed/",
        "policy   fits     s   per s          B  of time  unlimited",
        "move(m)  yes   8.00   0.125         60   50.0 %     75.0 %",
    ]
    assert lines[9].startswith("too narrow for mean allocated, offloaded;")
    assert any("  mean  " in line for line in printed(result_table(result), width=73))
    assert not any("  mean  " in line for line in printed(result_table(result), width=72))
    narrow = printed(result_table(result), width=30)
    assert any("allocated" in line for line in narrow)
    assert not any("speed/" in line for line in narrow)


def test_each_kind_of_memory_has_its_column(result: ScenarioResult) -> None:
    """60 B are allocated, as many reserved, and 260 in the process, with a context of 200: 0.254 of 1024 B.

    The largest number is 1220 B.
    """
    gpu = replace(result.server.gpu, context_bytes=200)
    lines = printed(result_table(replace(result, server=replace(result.server, gpu=gpu))), width=100)
    assert lines[3].split()[2:5] == ["allocated", "reserved", "process"]
    assert lines[5].split()[4:7] == ["0.0586", "0.0586", "0.254"]
    # Where there is no room beside each other, what decides stands below.
    longer = replace(result.results[0], policy="layrub_hybrid_twice_more")
    narrow = printed(result_table(replace(result, results=(longer,), server=replace(result.server, gpu=gpu))), width=20)
    assert "  process: 260 B" in narrow


def test_lines_have_no_blanks_at_their_ends() -> None:
    assert unpadded("a  b  \n\n  c \n") == "a  b\n\n  c\n"
