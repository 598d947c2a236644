import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from tests.nested import changed
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.report.run import recording as module
from vdnnsim.report.run.recording import recorded, recording


def unpacked(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(recording(result, rows))))
    return content


def test_a_trace_as_a_browser_reads_it(result: ScenarioResult, move: PolicyResult) -> None:
    """Of `move(m)` by start: conv1 and its offload at 0 s, fc at 3 and 4, the fetch at 5, conv1 at 7.

    They last 1, 3, 1, 1, 2 and 1 s. Memory: 10 and 20 B at 0 s, less 10 at 3, 10 at 5, 30 at 7, all back at 8. The
    first kernel of fc waits from 1 to 3 s for the offload, the last of conv1 from 5 to 7 s for the fetch.
    """
    content = unpacked(result, (move,))
    (run,) = content["runs"]
    spans, stalls, memory = run["spans"], run["stalls"], run["memory"]
    second = 10**9
    assert spans["start"] == [each * second for each in (0, 0, 3, 1, 1, 2)]
    assert spans["length"] == [each * second for each in (1, 3, 1, 1, 2, 1)]
    assert spans["bytes"] == [0, 10, 0, 0, 10, 0]
    assert [content["names"][each] for each in spans["name"]][:2] == [
        "forward of conv1 (gemm)",
        "offload of map input during forward of conv1",
    ]
    assert [content["looks"][each][0] for each in spans["look"]][1::3] == ["offload", "fetch on demand"]
    assert stalls["start"] == [second, 4 * second]
    assert (stalls["blocked"], stalls["waited"]) == ([2, 5], [1, 4])
    assert [content["causes"][each][0] for each in stalls["cause"]] == [
        "waits for an offload",
        "waits for a fetch on demand",
    ]
    assert memory["delta"] == [10, 20, -10, 10, 30, -30, -10, -20]
    assert memory["time"] == [each * second for each in (0, 0, 3, 2, 2, 1, 0, 0)]
    assert memory["offset"] == []
    assert run["numbers"]["stalled"] == [4.0, "s"]


def test_exchanges_and_stalls_for_the_host(pair: ScenarioResult, move: PolicyResult, result: ScenarioResult) -> None:
    content = unpacked(pair, pair.slowest[:1])
    looks = {content["looks"][each][0] for each in content["runs"][0]["spans"]["look"]}
    assert "exchange of gradients" in looks
    alone = changed(move, "trace", stalls=(replace(move.trace.stalls[0], waited_for=None),))
    assert unpacked(result, (alone,))["runs"][0]["stalls"]["waited"] == [-1]


def test_traces_beyond_the_limit_are_left_out(result: ScenarioResult, monkeypatch: pytest.MonkeyPatch) -> None:
    """`move(m)` and `dyn` have 14 operations, `keep(p)` 10; there is room for 24, and for one always."""
    monkeypatch.setattr(module, "MOST_OPERATIONS", 24)
    assert recorded(result.results) == result.results[:2]
    monkeypatch.setattr(module, "MOST_OPERATIONS", 1)
    assert recorded(result.results) == result.results[:1]
