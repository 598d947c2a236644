from dataclasses import replace

from tests.nested import changed
from vdnnsim.analysis.columns import RUN
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.report.run.page import page_text


def test_the_report(result: ScenarioResult) -> None:
    text = page_text(result, {"memory.png": "What it *says*"}, ("trace_dyn.json",))
    lines = text.splitlines()
    assert lines[0] == "# question"
    assert lines[2].startswith("toy, batch 1, float16, training on toy GPU with 1000 B (ideal memory model). No update")
    assert lines[4].startswith("- Speed: compared with")
    assert lines[7].startswith("Of 3 policies, move(m) and dyn are the fastest that fit: 8.00 s")
    assert lines[9].startswith("Memory that dyn needs: ")
    assert lines[11].startswith(
        "| policy | fits | time per iteration, s | images/s | allocated, B | mean allocated, B | "
    )
    assert lines[14] == "| keep(p) | NO \\* | 6.00 | 0.167 | 1020 | 1020 | 0 | 0.0 % | 100.0 % |"
    assert "![What it \\*says\\*](memory.png)" in lines
    assert [line for line in lines if line.startswith("## ")] == [
        "## Why does a policy not fit?",
        "## What did it cost to decide?",
        "## Where do the numbers come from?",
        "## What do the columns of results.csv mean?",
        "## What else is here?",
    ]
    assert any("toy by origin: 1 datasheet, 2 assumed; " in line for line in lines)
    assert all(any(line.startswith(f"- `{name}`: ") for line in lines) for name in RUN)
    assert any(line.startswith("- trace_dyn.json: ") for line in lines)


def test_sections_with_nothing_to_say_are_left_out(result: ScenarioResult, move: PolicyResult) -> None:
    text = page_text(replace(changed(result, "server", figures=()), results=(move,)), {}, ())
    assert "Why does a policy not fit?" not in text
    assert "What did it cost" not in text
    assert "does not fit;" not in text
    assert "by origin: none;" in text
