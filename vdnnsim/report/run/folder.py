"""The folder of a run: CSV, pages, pictures, traces, snapshots and the manifest `run.json`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.analysis.answer import Way
from vdnnsim.analysis.columns import COLUMNS, RUN, Measured, result_rows
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.analysis.several_gpus import timed_copies, waits_s
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import is_of_pytorch
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.report.findings import question_text
from vdnnsim.report.folder import QUESTION, Writer, Written, write_drawn
from vdnnsim.report.labels import file_names
from vdnnsim.report.picture import Picture
from vdnnsim.report.result_table import csv_text
from vdnnsim.report.run.page import page_text
from vdnnsim.report.run.perfetto import perfetto_text
from vdnnsim.report.run.snapshot import snapshot_pickle
from vdnnsim.report.tables.answer import sentences

_BESIDE_METRICS = ("performance_ratio", "feature_performance_ratio", "server_samples_per_s")
"""Columns that compare with the oracle or are of all GPUs."""


def run_facts(result: ScenarioResult) -> dict[str, Any]:
    """Return the content of the manifest: all that a result depends on, and every number, in SI units.

    It has no dates, and of the machine that ran the simulator versions alone: equal inputs give equal bytes.
    """
    workload, server, captured = result.workload, result.server, result.captured
    return {
        QUESTION: question_text(result),
        "seed": None,  # nothing is random
        "scenario": {
            "name": result.name,
            "workload": {
                "network": workload.graph.name,
                "layers": len(workload.graph.layers),
                "parameters": workload.graph.parameters,
                "batch_size": workload.batch_size,
                "element_type": workload.element_type.value,
                "precision": workload.precision.value,
                # Of a captured step by the name that it was captured with, as adamw.
                "optimizer": workload.optimizer.value if captured is None else captured.base.optimizer,
                "mode": workload.mode.value,
            },
            "hardware": server.name,
            "policies": [*(each.policy for each in result.slowest), *(each.policy for each in result.declined)],
            "memory_model": result.memory_model.value,
            "pinned_memory": result.pinned_memory.value,
            "execution": result.execution.value,
            "gpus": result.gpus,
            "gradients": None if result.gradients is None else result.gradients.value,
        },
        "hardware": msgspec.to_builtins(server, str_keys=True, enc_hook=_name),
        "oracle": _metrics(result.oracle),
        "kernel_seconds": {origin.value: seconds for origin, seconds in result.kernels.seconds.items()},
        "kernel_table_gap": result.kernels.gap or None,
        "algorithm_profiling_s": result.algorithm_profiling_s,
        **_captured(captured),
        "advice": list(sentences(result)),
        "tried": [_way(each) for each in result.answer.ranked],
        "without_plan": {each.policy: each.reason for each in result.declined},
        "results": [_policy(result, each) | _of_several(each, server) for each in result.results],
    }


def _name(value: object) -> str:
    """Return the name of a file, without its folder, which differs between machines."""
    assert isinstance(value, Path), f"{value!r} has no place in a manifest"
    return value.name


def _captured(model: CapturedModel | None) -> dict[str, Any]:
    if model is None:
        return {}
    step = model.base
    return {
        "captured": {
            "model": step.model,
            "framework": step.framework,
            "device": step.device,
            "optimizer": step.optimizer,
            "operations": len(step.operations),
            "saved_bytes": step.saved_bytes,
            "peak_live_bytes": step.peak_live_bytes,
            "notes": list(step.notes),
            "batches": model.batches or None,
        }
    }


def _policy(result: ScenarioResult, row: PolicyResult) -> dict[str, Any]:
    passes, measured = row.trace.plan.passes, Measured.of(result, row)
    return {
        "policy": row.policy,
        "algorithms": row.algorithms,
        "gpu": row.gpu,
        "fits": row.fits,
        "refusal": None if row.refusal is None else _refusal(row.refusal),
        **{name: COLUMNS[name].of(measured) for name in _BESIDE_METRICS},
        "metrics": _metrics(row.metrics),
        "host_issue_s": row.trace.host_issue_s,
        "passes": [{"name": one.name, "fits": one.fits, "cost_s": one.cost_s} for one in passes],
        "passes_s": sum(one.cost_s for one in passes),
        **_certificate(row),
    }


def _certificate(row: PolicyResult) -> dict[str, Any]:
    """Return the certificate of a plan, without a gap where it does not fit; empty for a plan without one."""
    certificate = row.trace.plan.certificate
    if certificate is None:
        return {}
    content: dict[str, Any] = msgspec.to_builtins(certificate)
    content["offloaded"] = [{"name": name, "bytes": nbytes} for name, nbytes in certificate.offloaded]
    content["gap_ratio"] = certificate.gap(row.metrics.iteration_s) if row.fits else None
    return {"certificate": content}


def _of_several(result: PolicyResult, server: Server) -> dict[str, Any]:
    if result.server_trace is None:
        return {}
    copies = timed_copies(result.trace, server, result.gpu)
    return {
        "copies_s": sum(copy.taken_s for copy in copies),
        "copies_alone_s": sum(copy.alone_s for copy in copies),
        "waited_for_gpu_s": list(waits_s(result.server_trace)[result.gpu]),
    }


def _way(way: Way) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(way)
    return content | {"fits": way.fits}


def _metrics(metrics: RunMetrics) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(metrics)
    content["peak_by_kind"] = {kind.value: nbytes for kind, nbytes in metrics.peak_by_kind}
    content["stall_by_cause"] = {cause.value: seconds for cause, seconds in metrics.stall_by_cause}
    return content


def _refusal(refusal: DoesNotFit) -> dict[str, Any]:
    return {
        "explanation": refusal.explain(),
        "pool": refusal.pool.value,
        "layer": refusal.plan.layers[refusal.layer],
        "phase": refusal.phase.value,
        "buffer": refusal.plan.buffers[refusal.buffer].name,
        "requested_bytes": refusal.requested_bytes,
        "free_bytes": refusal.free_bytes,
        "largest_free_bytes": refusal.largest_free_bytes,
        "capacity_bytes": refusal.capacity_bytes,
        "held_bytes": {kind.value: nbytes for kind, nbytes in refusal.held_bytes},
    }


ALWAYS: Final = ("run.json", "results.csv", "report.md", "report.html", "memory.png", "timeline.png")
"""Files of every run; one stream that is always busy has no `timeline.png`."""
RUN_WRITER: Final = Writer.of(
    "run",
    ALWAYS,
    *("format_version", "scenario", "results", "files"),
    others=r"policies\.png|trace_[\w.]+\.json|snapshot_[\w.]+\.pickle|(gpus|links)_[\w.]+\.png",
    version=3,
)


def write_report(result: ScenarioResult, folder: Path) -> Written:
    """Write tables, report, pictures and traces of a scenario, replacing those of an earlier run."""
    return write_drawn(folder, partial(_pictures, result), partial(_files, result), RUN_WRITER)


def report_files(result: ScenarioResult) -> dict[str, bytes]:
    return _files(result, _pictures(result))


def _pictures(result: ScenarioResult) -> dict[str, Picture]:
    # Importing matplotlib takes longer than most scenarios.
    from vdnnsim.report.plots import draw_pictures

    return {each.name: each for each in draw_pictures(result)}


def _files(result: ScenarioResult, pictures: Mapping[str, Picture]) -> dict[str, bytes]:
    from vdnnsim.report.run.browser import html_text

    traces, snapshots = trace_names(result.slowest), snapshot_names(result)
    contents: dict[str, str | bytes] = {
        "results.csv": csv_text(RUN, result_rows(result)),
        "report.md": page_text(result, {name: each.description for name, each in pictures.items()}, traces, snapshots),
        "report.html": html_text(result),
        **{name: perfetto_text(result, rows) for name, rows in zip(traces, result.by_policy, strict=True)},
        **{name: each.png for name, each in pictures.items()},
        **{name: snapshot_pickle(result, rows) for name, rows in zip(snapshots, result.by_policy, strict=False)},
    }
    return RUN_WRITER.with_manifest(result.sources, run_facts(result), contents)


def trace_names(results: tuple[PolicyResult, ...]) -> tuple[str, ...]:
    """Return a file name for the trace of each policy: `trace_vdnn_all_m.json`."""
    return file_names("trace", [each.policy for each in results], ".json")


def snapshot_names(result: ScenarioResult) -> tuple[str, ...]:
    """Return a file name for the memory snapshot of each policy; none without PyTorch's allocator."""
    if not is_of_pytorch(result.memory_model):
        return ()
    return file_names("snapshot", [each.policy for each in result.slowest], ".pickle")
