import json
from dataclasses import replace

import pytest

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.report import folder
from vdnnsim.report.folder import Commit, versions
from vdnnsim.report.run.folder import run_manifest


def test_what_was_run(result: ScenarioResult, monkeypatch: pytest.MonkeyPatch) -> None:
    """conv1 has 5 x 5 + 5 weights and fc 5 + 1, 36 in all; the loss is the third layer."""
    monkeypatch.setattr(folder, "source_commit", lambda: Commit("c0ffee", modified=True))
    manifest = json.loads(run_manifest(result, ("results.csv", "a.png")))
    assert manifest["versions"] == versions()
    assert (manifest["commit"], manifest["commit_modified"]) == ("c0ffee", True)
    assert manifest["inputs"] == [
        {"name": "scenarios/question.yaml", "sha256": "ab12"},
        {"name": "hw_profiles/toy.yaml", "sha256": "cd34"},
    ]
    assert manifest["seed"] is None
    assert manifest["scenario"] == {
        "name": "question",
        "workload": {
            "network": "toy",
            "layers": 3,
            "parameters": 36,
            "batch_size": 1,
            "element_type": "float16",
            "precision": "float16",
            "optimizer": "none",
            "mode": "training",
        },
        "hardware": "toy",
        "policies": ["move(m)", "keep(p)", "dyn"],
        "memory_model": "ideal",
        "pinned_memory": "arena",
        "execution": "eager",
        "gpus": 1,
        "gradients": None,
    }
    assert manifest["hardware"]["gpu"]["memory_bytes"] == 1000
    assert manifest["hardware"]["gpu"]["flop_per_s"] == {"float32": 1.0}
    assert manifest["hardware"]["figures"][0] == {
        "path": "gpu.memory",
        "text": "1000 B",
        "origin": "datasheet",
        "source": "the box",
    }
    assert manifest["files"] == ["a.png", "results.csv"]
    assert manifest["algorithm_profiling_s"] == 12.0


def test_every_metric_of_a_policy(result: ScenarioResult) -> None:
    """The numbers of `dyn`, which are those of `move(m)`, with its passes."""
    manifest = json.loads(run_manifest(result, ()))
    assert manifest["results"][2] == {
        "policy": "dyn",
        "algorithms": "all(m)",
        "gpu": 0,
        "fits": True,
        "refusal": None,
        "performance_ratio": 0.75,
        "feature_performance_ratio": 4.0 / 6.0,
        "server_images_per_s": 0.125,
        "metrics": {
            "iteration_s": 8.0,
            "images_per_s": 0.125,
            "max_memory_bytes": 60,
            "mean_memory_bytes": 31.25,
            "pool_bytes": 60,
            "peak_by_kind": {"workspace": 30, "weights": 20, "feature maps": 10},
            "feature_max_memory_bytes": 40,
            "feature_step_mean_memory_bytes": 25.0,
            "feature_iteration_s": 6.0,
            "offloaded_bytes": 10,
            "prefetched_bytes": 10,
            "host_memory_bytes": 10,
            "stall_s": 4.0,
            "stall_by_cause": {"waits for an offload": 2.0, "waits for a fetch on demand": 2.0},
        },
        "host_issue_s": 0.5,
        "passes": [
            {"name": "all(m)", "fits": True, "cost_s": 8.0},
            {"name": "base(p)", "fits": False, "cost_s": 2.0},
        ],
        "passes_s": 10.0,
    }
    assert manifest["oracle"]["max_memory_bytes"] == 1020


def test_a_refusal_says_who_asked_for_how_much_and_what_held_the_rest(result: ScenarioResult) -> None:
    refusal = json.loads(run_manifest(result, ()))["results"][1]["refusal"]
    assert refusal.pop("explanation").startswith("backward weights of conv1 asked for 990 B")
    assert refusal == {
        "pool": "GPU memory",
        "layer": "conv1",
        "phase": "backward weights",
        "buffer": "workspace",
        "requested_bytes": 990,
        "free_bytes": 970,
        "largest_free_bytes": 970,
        "capacity_bytes": 1000,
        "held_bytes": {"weights": 20, "feature maps": 10},
    }


def test_an_unknown_commit_is_null(result: ScenarioResult, move: PolicyResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "source_commit", lambda: None)
    manifest = json.loads(run_manifest(replace(result, results=(move,)), ()))
    assert (manifest["commit"], manifest["commit_modified"]) == (None, None)
