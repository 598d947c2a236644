import json

import pytest

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report import folder
from vdnnsim.report.folder import Commit, manifest, versions
from vdnnsim.report.run.folder import run_facts


def test_what_was_run(result: ScenarioResult, monkeypatch: pytest.MonkeyPatch) -> None:
    """conv1 has 5 x 5 + 5 weights and fc 5 + 1, 36 in all; the loss is the third layer."""
    monkeypatch.setattr(folder, "source_commit", lambda: Commit("c0ffee", modified=True))
    said = json.loads(manifest(1, result.sources, run_facts(result), ("results.csv", "a.png")))
    assert said["versions"] == versions()
    assert (said["commit"], said["commit_modified"]) == ("c0ffee", True)
    assert said["inputs"] == [
        {"name": "scenarios/question.yaml", "sha256": "ab12"},
        {"name": "hw_profiles/toy.yaml", "sha256": "cd34"},
    ]
    assert said["seed"] is None
    assert said["scenario"] == {
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
    assert said["hardware"]["gpu"]["memory_bytes"] == 1000
    assert said["hardware"]["gpu"]["flop_per_s"] == {"float32": 1.0}
    assert said["hardware"]["figures"][0] == {
        "path": "gpu.memory",
        "text": "1000 B",
        "origin": "datasheet",
        "source": "the box",
    }
    assert said["files"] == ["a.png", "results.csv"]
    assert said["algorithm_profiling_s"] == 12.0


def test_every_metric_of_a_policy(result: ScenarioResult) -> None:
    """The numbers of `dyn`, which are those of `move(m)`, with its passes."""
    facts = run_facts(result)
    assert facts["results"][2] == {
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
    assert facts["oracle"]["max_memory_bytes"] == 1020


def test_a_refusal_says_who_asked_for_how_much_and_what_held_the_rest(result: ScenarioResult) -> None:
    refusal = run_facts(result)["results"][1]["refusal"]
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


def test_an_unknown_commit_is_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "source_commit", lambda: None)
    said = json.loads(manifest(1, (), {}, ()))
    assert (said["commit"], said["commit_modified"]) == (None, None)
