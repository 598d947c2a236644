import os
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.nested import changed
from vdnnsim.analysis.results import Nearby, PolicyResult, ScenarioResult
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.report.run.browser import capacity_height, dots, html_text

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PROBE = """<script>
window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });
const look = setInterval(() => {
  if (document.documentElement.dataset.ready !== "yes") return;
  clearInterval(look);
  const canvas = document.getElementById("streams"), box = canvas.getBoundingClientRect(), note = document.body.dataset;
  const words = () => document.getElementById("readout").textContent;
  const key = (name) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, cancelable: true }));
  note.rows = document.querySelectorAll("#waits tbody tr").length;
  const half = { clientX: box.left + 92 + (box.width - 92) / 2, clientY: box.top + 20 };
  canvas.dispatchEvent(new PointerEvent("pointermove", half));
  note.hover = words();
  canvas.dispatchEvent(new PointerEvent("pointermove", { ...half, clientY: box.top + 240 }));
  note.host = words();
  key("w");
  note.wait = words();
  canvas.dispatchEvent(new WheelEvent("wheel", { ...half, deltaY: -300, ctrlKey: true, cancelable: true }));
  key("n");
  note.next = words();
  note.live = document.getElementById("alive-title").textContent;
  key("Enter");
  note.middle = document.getElementById("alive-title").textContent;
  document.querySelector(".dot.unfit").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  note.chosen = document.getElementById("stalls-title").textContent;
  note.title = document.getElementById("difference-title").textContent;
  note.difference = document.querySelector("#difference tbody tr").textContent;
  note.would = document.getElementById("would").textContent;
  const other = new DataTransfer(), input = document.getElementById("another");
  other.items.add(new File([document.documentElement.outerHTML], "other.html"));
  input.files = other.files;
  input.dispatchEvent(new Event("change"));
  const read = setInterval(() => {
    if (!document.getElementById("read").textContent) return;
    clearInterval(read);
    note.read = document.getElementById("read").textContent;
    note.other = document.getElementById("difference-title").textContent;
  }, 20);
}, 20);
</script></head>"""


def with_nearby(result: ScenarioResult) -> ScenarioResult:
    times = ((1.0, 8.0), (2.0, 6.0))
    return replace(result, nearby=tuple(Nearby("move(m)", link, ((500, None), (1000, time))) for link, time in times))


def test_without_scripts_the_findings_stand_in_order(result: ScenarioResult) -> None:
    """`dyn` is shown, of which 2 s are lost to the offload and 2 s to the fetch on demand, of 8 s.

    It is compared with `keep(p)`, which takes another time: 6 s, and 1020 B for its 60 B.
    """
    text = re.sub(r"<script.*?</script>", "", html_text(with_nearby(result)), flags=re.DOTALL)
    parts = (
        "<h1>Of 3 policies, move(m) and dyn are the fastest that fit: 8.00 s per iteration, 0.125 images/s.</h1>",
        "Speed: compared with this GPU with unlimited memory",
        "<dd>8.00 s</dd>",
        "60 B of 1000 B<small>940 B free</small>",
        "Of 8.00 s, dyn loses 4.00 s: 2.00 s waiting for an offload, 2.00 s waiting for a fetch on demand",
        "60 B are live in backward weights of conv1: workspace 30 B, weights 20 B, activations 10 B",
        "Over a link twice as fast move(m) would take 6.00 s instead of 8.00 s",
        "keep(p) takes 25 % less time than dyn and 960 B more memory",
        "Why does a policy not fit?",
        "it is a toy",
    )
    at = [text.index(part) for part in parts]
    assert at == sorted(at)
    assert not re.search(r'(src|href)="(?!https://|#|data:)', text)
    assert "http://" not in text


def test_the_least_memory_is_named_where_nothing_fits(result: ScenarioResult) -> None:
    """There are 1000 B."""
    rows = (Nearby("move(m)", 1.0, ((1000, None), (2000, None))), Nearby("dyn", 1.0, ((1000, None), (2000, 3.0))))
    other = tuple(replace(row, bandwidth=2.0) for row in rows)
    assert "With 1.95 KiB of memory dyn would fit" in html_text(replace(result, nearby=(*rows, *other)))


def test_addresses_are_shown_where_memory_was_placed(result: ScenarioResult, move: PolicyResult) -> None:
    text = html_text(replace(result, results=(move,)))
    assert 'id="nearby"' not in text
    assert 'id="map"' not in text
    placed = changed(move, "trace", memory=tuple(replace(each, offset=0) for each in move.trace.memory))
    assert 'id="map"' in html_text(replace(result, results=(placed,)))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_runs_it_without_errors(result: ScenarioResult, tmp_path: Path) -> None:
    """The pointer stands at half of 8 s, right of the names, where W alone is in use.

    Both waits are of 2 s, so the earlier one is first; keep(p), which does not fit, takes 6 s.
    """
    page = tmp_path / "report.html"
    page.write_text(html_text(with_nearby(result)).replace("</head>", PROBE, 1), encoding="utf-8")
    assert CHROMIUM is not None
    done = subprocess.run(
        (
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *("--virtual-time-budget=4000", "--window-size=1400,900", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--dump-dom", page.as_uri()),
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert "CONSOLE" not in done.stderr
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r"<body[^>]*>", done.stdout)[0]))  # type: ignore[index]
    assert found == {
        "rows": "2",
        "hover": "20 B allocated at 4.00 sweights 20 B",
        "host": "10 B on the host at 4.00 soffloaded and not yet prefetched",
        "wait": "waits for an offload: 2.00 s lost from 1.00 s on"
        "forward of fc waits for offload of map input during forward of conv1",
        "next": "waits for a fetch on demand: 2.00 s lost from 5.00 s on"
        "backward weights of conv1 (fft) waits for fetch on demand of map input during backward of conv1",
        "live": "60 B are live at the peak of dyn, 7.00 s",
        "middle": "20 B are live at 4.00 s",
        "chosen": "keep(p) does not fit by 20 B; with unlimited memory it would take 6.00 s",
        "title": "keep(p) takes 25.0 % less time than dyn and 960 B more memory",
        "difference": "time per iteration8.00 s6.00 s\N{MINUS SIGN}2.00 s\N{MINUS SIGN}25.0 %",
        "would": "move(m)8.00 s",
        "read": "3 runs of question on toy GPU",
        "other": "dyn of question on toy GPU, other.html takes as long as dyn and as much memory",
    }


def test_what_is_reserved_ahead_is_not_what_a_policy_needs(result: ScenarioResult, move: PolicyResult) -> None:
    """60 B of blocks among 84 that are reserved: the dot stands where a comparison ranks it, and the page says so."""
    ahead = replace(result, memory_model=AllocatorSettings(preallocated=True))
    ahead = replace(ahead, results=(changed(move, "trace", pool_bytes=84),))
    (dot,) = dots(ahead)
    assert dot.words.endswith(" 60 B")
    assert "pictures go by the 60 B that it needs" in html_text(ahead)


def test_names_of_dots_do_not_meet(result: ScenarioResult, move: PolicyResult) -> None:
    """Ten policies that differ by a hundredth of memory: their dots nearly meet, their names keep a line apart."""
    rows = tuple(
        replace(changed(move, "trace", pool_bytes=60000 + 600 * number), policy=f"policy_{number}")
        for number in range(10)
    )
    heights = sorted(dot.label for dot in dots(replace(result, results=rows)))
    assert len(heights) == 10
    assert min(later - earlier for earlier, later in pairwise(heights)) > 0.07


def test_a_name_keeps_clear_of_that_of_the_capacity(result: ScenarioResult, move: PolicyResult) -> None:
    """The slowest policy stands at the right end, where the capacity is named half a line above its own height."""
    fast = changed(move, "trace", pool_bytes=10)
    slow = replace(move, policy="slow", metrics=replace(move.metrics, iteration_s=80.0))
    at_capacity = replace(slow, trace=replace(slow.trace, pool_bytes=result.server.gpu.memory_bytes))
    rows = replace(result, results=(fast, at_capacity))
    named = next(dot for dot in dots(rows) if dot.name == "slow")
    height = capacity_height(rows)
    assert named.y == pytest.approx(height)
    assert abs(named.label - (height + 0.039)) >= 0.078


def test_only_unbeaten_policies_are_named_among_many(result: ScenarioResult, move: PolicyResult) -> None:
    """Of 13 in equal memory the fastest, and the capacity is seen where nothing fits below it: 1000 B under 60,000."""
    large = changed(move, "trace", pool_bytes=60000)
    rows = tuple(
        replace(large, policy=f"policy_{number}", metrics=replace(move.metrics, iteration_s=8.0 + number))
        for number in range(13)
    )
    many = replace(result, results=rows)
    assert [dot.name for dot in dots(many) if not dot.quiet] == ["policy_0"]
    assert 0 < capacity_height(many) < 1
    equal = replace(result, results=tuple(replace(row, metrics=move.metrics) for row in rows))
    assert dots(equal)[0].name == "policy_0 and 12 of the same"
