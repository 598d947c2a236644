"""What comes with vdnnsim: the commands of `list`, which say what scenarios may name, and `examples`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import POLICY_MODULE, FilePath, policies_with, prints_table
from vdnnsim.cli.output import Output, check_folder, print_result
from vdnnsim.errors import OutputError
from vdnnsim.files.packaged import PROFILES, SCENARIOS, shipped_folder

if TYPE_CHECKING:
    from vdnnsim.analysis.columns import Row
    from vdnnsim.hardware.server import Server


@click.command()
@click.argument("folder", metavar="DIR", type=FilePath())
def examples(folder: Path) -> None:
    """Copy scenarios, studies and hardware profiles to DIR.

    Nothing that is there is written over. A profile in DIR is found before ours by what lies beside it.
    """
    from shutil import copytree

    check_folder(folder)
    for name in (SCENARIOS, PROFILES):
        if (folder / name).exists():
            raise OutputError(f"{folder / name}: is there already; move it away, or name another folder")
    for name in (SCENARIOS, PROFILES):
        copytree(shipped_folder(name), folder / name)
    click.echo(
        f"wrote {folder / SCENARIOS}/ and {folder / PROFILES}/; `vdnnsim run {folder / SCENARIOS}/vgg416.yaml`",
        err=True,
    )


@click.group(name="list")
def list_() -> None:
    """List what scenarios may name."""


@list_.command()
@prints_table
def networks(output: Output) -> None:
    """List the networks, with the work and the feature maps of one image in float32; families with their members.

    Of what is no image they are those of one text of so many tokens, one video, one sequence.
    """
    from vdnnsim.dnn.layers import LayerKind, Phase
    from vdnnsim.dnn.networks import NETWORKS
    from vdnnsim.dnn.networks.families import FAMILIES
    from vdnnsim.dnn.samples import sample_of
    from vdnnsim.dnn.workload import Workload

    header = ("name", "conv_layers", "fc_layers", "parameters", "forward_gflop", "feature_maps_mib", "reads", "members")
    rows: list[Row] = []
    for name, build in NETWORKS.items():
        workload = Workload(build(), batch_size=1)
        graph = workload.graph
        sample = sample_of(graph)
        kinds = [layer.kind for layer in graph.layers]
        flop = sum(workload.flop(layer, Phase.FORWARD) for layer in graph.layers)
        nbytes = sum(workload.map_bytes(each.index) for each in graph.maps)
        rows.append(
            (
                name,
                kinds.count(LayerKind.CONV),
                kinds.count(LayerKind.FC),
                graph.parameters,
                round(flop / 1e9, 2),
                round(nbytes / 2**20, 1),
                f"{sample.steps} {sample.step}s" if sample.step else "1 image",
                "",
            )
        )
    rows.extend((family.name, "", "", "", "", "", "1 image", family.members) for family in FAMILIES)
    output.show_list(header, rows, ("fc_layers", "conv_layers", "feature_maps_mib", "forward_gflop"))


@list_.command()
@prints_table
@POLICY_MODULE
def policies(output: Output, policy_modules: Sequence[str]) -> None:
    """List the policies and what their options may be, the default first."""
    from vdnnsim.policies.registry import describe_options

    rows = [(name, describe_options(policy), policy.summary) for name, policy in policies_with(policy_modules).items()]
    output.show_list(("name", "options", "summary"), rows, ("options",))


@list_.command()
@prints_table
@click.option("--tree", "drawn", metavar="NAME", help="Draw the links of one profile instead, by name or path.")
@click.option("--sources", "traced", metavar="NAME", help="Print where every number of one profile comes from instead.")
def hardware(output: Output, drawn: str | None, traced: str | None) -> None:
    """List the hardware profiles that are shipped, and where their kernel times come from."""
    from vdnnsim.hardware.profile import shipped_profiles
    from vdnnsim.units import format_bytes

    if drawn is not None and traced is not None:
        raise click.UsageError("--tree and --sources are of one profile each, and print different things.")
    if drawn is not None:
        if output.csv_file is not None or output.as_json:
            raise click.UsageError("--tree draws no table, so --csv and --json have nothing to write.")
        _draw(drawn)
        return
    if traced is not None:
        _trace(traced, output)
        return
    rows = [
        (
            each.server.name,
            each.server.gpu.name,
            format_bytes(each.server.gpu.memory_bytes),
            each.server.link.name,
            _timed_by(each.server),
            each.description,
        )
        for each in shipped_profiles()
    ]
    output.show_list(("name", "gpu", "memory", "link", "kernels", "description"), rows)


def _draw(name: str) -> None:
    from vdnnsim.hardware.profile import find_profile, read_profile
    from vdnnsim.report.tables.topology import topology_tree

    print_result(topology_tree(read_profile(find_profile(name, Path()))))


def _trace(name: str, output: Output) -> None:
    from vdnnsim.hardware.profile import find_profile, load_profile

    profile = load_profile(find_profile(name, Path()))
    server = profile.server
    rows = [(each.path, each.text, each.origin.value, each.source) for each in server.figures]
    if server.kernels is not None:
        source = "; ".join((server.kernels.table.name, *(f"{key} {text}" for key, text in server.provenance)))
        rows.append(("kernels", "", "", f"{_timed_by(server)}: {source}"))
    output.show_list(("figure", "value", "origin", "source"), rows)


def _timed_by(server: "Server") -> str:
    from vdnnsim.cost.kernel_file import read_measured_kernels
    from vdnnsim.cost.kernel_table import describe_kernels

    if server.kernels is not None:
        return describe_kernels(read_measured_kernels(server.kernels))
    return "cost model" if server.cost_model else "none"
