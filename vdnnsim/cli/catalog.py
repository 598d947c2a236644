"""Commands on shipped files and the installation: `list`, `examples`, `new` and `doctor`."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.options import HARDWARE, POLICY_MODULE, FilePath, policies_with, prints_table
from vdnnsim.cli.output import Output, check_folder, print_result
from vdnnsim.errors import DeviceError, OutputError, ProfileError
from vdnnsim.files.packaged import PROFILES, SCENARIOS, shipped_folder

if TYPE_CHECKING:
    from vdnnsim.analysis.columns import Row
    from vdnnsim.hardware.server import Server


@click.command()
@click.argument("folder", metavar="DIR", type=FilePath())
def examples(folder: Path) -> None:
    """Copy scenarios, studies and hardware profiles to DIR.

    Existing files are never overwritten. Scenarios in DIR find a profile in DIR before one of vdnnsim.
    """
    from shutil import copytree

    check_folder(folder)
    for name in (SCENARIOS, PROFILES):
        if (folder / name).exists():
            raise OutputError(f"{folder / name}: exists already; move it away, or name another folder")
    for name in (SCENARIOS, PROFILES):
        copytree(shipped_folder(name), folder / name)
    click.echo(
        f"wrote {folder / SCENARIOS}/ and {folder / PROFILES}/; `vdnnsim run {folder / SCENARIOS}/vgg416.yaml`",
        err=True,
    )


class _Named(click.Group):
    """A group that names what is in it, a `what`, where something else is asked for."""

    what = ""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from vdnnsim.files.messages import not_one_of

        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            ctx.fail(not_one_of(args[0], self.list_commands(ctx), self.what))
        return super().resolve_command(ctx, args)


class _Lists(_Named):
    what = "a list"


@click.group(name="list", cls=_Lists)
def list_() -> None:
    """List what scenarios may name."""


@list_.command()
@prints_table
def networks(output: Output) -> None:
    """List the networks, with FLOPs and feature maps of one sample in float32; families with their members."""
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
        gflop = round(sum(workload.flop(layer, Phase.FORWARD) for layer in graph.layers) / 1e9, 2)
        mib = round(sum(workload.map_bytes(each.index) for each in graph.maps) / 2**20, 1)
        reads = f"{sample.steps} {sample.step}s" if sample.step else "1 image"
        layers = kinds.count(LayerKind.CONV), kinds.count(LayerKind.FC)
        rows.append((name, *layers, graph.parameters, gflop, mib, reads, ""))
    rows.extend((family.name, "", "", "", "", "", "1 image", family.members) for family in FAMILIES)
    output.show_list(header, rows, ("fc_layers", "conv_layers", "feature_maps_mib", "forward_gflop"))


@list_.command()
@prints_table
@POLICY_MODULE
def policies(output: Output, policy_modules: Sequence[str]) -> None:
    """List the policies and the choices of their options, the default first."""
    from vdnnsim.policies.registry import describe_options

    rows = [(name, describe_options(policy), policy.summary) for name, policy in policies_with(policy_modules).items()]
    output.show_list(("name", "options", "summary"), rows, ("options",))


@list_.command()
@click.argument("words", metavar="[WORD]...", type=HARDWARE, nargs=-1)
@prints_table
@click.option("--tree", "drawn", type=HARDWARE, help="Draw the links of one profile instead, by name or path.")
@click.option("--sources", "traced", type=HARDWARE, help="Print where every number of one profile comes from instead.")
def hardware(words: Sequence[str], output: Output, drawn: str | None, traced: str | None) -> None:
    """List the cards that come with vdnnsim, one a line, with their profiles and the number of rates fitted to each.

    By WORDs, as `4090` or `x8`, those that have every WORD in the name of the card or of the profile. With --csv or
    --json each profile is a row.
    """
    from vdnnsim.hardware.profile import find_profile, load_profile, read_profile
    from vdnnsim.report.tables.topology import topology_tree

    if words and (drawn or traced):
        raise click.UsageError("--tree and --sources take one profile, expected no WORD beside them.")
    if drawn is not None and traced is not None:
        raise click.UsageError("--tree and --sources print different things, expected one of them.")
    if drawn is not None:
        if output.csv_file is not None or output.as_json:
            raise click.UsageError("--tree draws no table, so --csv and --json have nothing to write.")
        print_result(topology_tree(read_profile(find_profile(drawn, Path()))))
    elif traced is not None:
        _list_sources(load_profile(find_profile(traced, Path())).server, output)
    else:
        _list_cards(words, output)


def _list_cards(words: Sequence[str], output: Output) -> None:
    from vdnnsim.files.messages import plain, quote
    from vdnnsim.hardware.profile import card_words, shipped_profiles
    from vdnnsim.hardware.server import Origin
    from vdnnsim.report.document import plain_table
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.units import format_bytes

    rows: list[Row] = []
    cards: dict[frozenset[str], tuple[str, ...]] = {}
    for each in shipped_profiles():
        server, gpu = each.server, each.server.gpu
        if any(plain(word) not in plain(f"{gpu.name} {server.name}") for word in words):
            continue
        memory = format_bytes(gpu.memory_bytes)
        rates = [figure.origin for figure in server.figures if figure.path.startswith("cost_model.")]
        fitted = f"{sum(origin is Origin.FITTED for origin in rates)} of {len(rates)}" if rates else "measured kernels"
        rows.append((server.name, gpu.name, memory, server.link.name, _timed_by(server), each.description))
        card = gpu.name.removeprefix("NVIDIA "), memory
        *same, counts, names = cards.get(card_words(gpu.name), (*card, "", ""))
        counts = counts if fitted in counts.split(", ") else ", ".join(filter(None, (counts, fitted)))
        cards[card_words(gpu.name)] = (*same, counts, ", ".join(filter(None, (names, server.name))))
    if not rows:
        raise ProfileError(f"{quote(' '.join(words))}: no card has this in its name; `vdnnsim list hardware` names all")
    shown = plain_table(("card", "memory", "cost-model rates fitted to it", "profiles"), sorted(cards.values()))
    output.show(ResultTable(("name", "gpu", "memory", "link", "kernels", "description"), rows, shown))


def _list_sources(server: "Server", output: Output) -> None:
    from calibration.pretend.card import capability_figure

    figures = dict.fromkeys((*server.figures, capability_figure(server)))
    rows = [(each.path, each.text, each.origin.value, each.source) for each in figures]
    if server.kernels is not None:
        source = "; ".join((server.kernels.table.name, *(f"{key} {text}" for key, text in server.provenance)))
        rows.append(("kernels", "", "", f"{_timed_by(server)}: {source}"))
    output.show_list(("figure", "value", "origin", "source"), rows)


def _timed_by(server: "Server") -> str:
    from vdnnsim.cost.kernel_table import describe_kernels, read_measured_kernels

    if server.kernels is not None:
        return describe_kernels(read_measured_kernels(server.kernels))
    return "cost model" if server.cost_model else "none"


class _Templates(_Named):
    what = "a file to fill in (`vdnnsim examples` writes scenarios)"


@click.group(cls=_Templates)
def new() -> None:
    """Write a file to fill in."""


@new.command(name="hardware")
@click.argument("name")
def new_hardware(name: str) -> None:
    """Write hw_profiles/NAME.yaml, a hardware profile to fill in; `vdnnsim check` says what is missing in it."""
    from vdnnsim.files.atomic import replace_file
    from vdnnsim.files.messages import quote
    from vdnnsim.hardware.profile import is_profile_name
    from vdnnsim.hardware.write import template

    if not is_profile_name(name):
        raise ProfileError(f"found {quote(name)}, expected a name of letters, digits and any of _.-, as rtx_5090")
    path = Path("hw_profiles") / f"{name}.yaml"
    if path.exists():
        raise OutputError(f"{path}: exists already; move it away, or choose another name")
    path.parent.mkdir(exist_ok=True)
    replace_file(path, template(name).encode())
    click.echo(f"wrote {path}; fill in every ..., then: vdnnsim check {path}", err=True)


_PACKAGES: Final = (
    *("click", "jinja2", "matplotlib", "msgspec", "numpy", "pandas", "pyyaml", "rich", "scipy", "simpy"),
    *("pyarrow", "distributed", "torchvision", "timm", "transformers", "nvidia-cudnn-frontend"),
)
_MODELS_OF: Final = {"transformers": "transformers.models.llama.modeling_llama"}
"""What is imported for a model of a library that imports little by itself."""


@click.command()
@prints_table
def doctor(output: Output) -> None:
    """Say which commands work here, and what the others lack."""
    import platform

    found = [("vdnnsim", _version("vdnnsim")), ("python", f"{platform.python_version()}, {platform.system()}")]
    found += [(name, version) for name in _PACKAGES if (version := _version(name))]
    lacking = dict(_features())
    if not lacking["capture, run --model"]:
        from calibration.devices.provenance import torch_report

        found += torch_report()
    output.show_list(("what", "here"), [*found, *((name, reason or "works") for name, reason in lacking.items())])


def _features() -> Iterator[tuple[str, str]]:
    """Yield features, each with what is missing for it, or empty."""
    from calibration.pretend.build import find_compiler, find_torch

    without_torch = _without("torch", "'vdnnsim[calibrate]'")
    if not without_torch:
        from calibration.availability import require_torch

        without_torch = _lacking(require_torch)
    if not (without_gpu := without_torch):
        from calibration.devices.provenance import missing_gpu_reason

        without_gpu = missing_gpu_reason()
    yield "run, compare, whatif, sweep, claims", ""
    yield "capture, run --model", without_torch
    for name in ("torchvision", "timm", "transformers"):
        yield f"models by name of {name}", without_torch or _without(_MODELS_OF.get(name, name), name)
    yield "calibrate and validate --device cpu", without_torch
    yield "calibrate and validate on a GPU", without_gpu
    yield "calibrate every algorithm of cuDNN", without_torch or _without("cudnn", "'vdnnsim[cudnn]'")
    yield "pretend a GPU", _lacking(find_torch) or _lacking(find_compiler)
    yield "sweep --parquet", _without("pyarrow", "'vdnnsim[notebook]'")
    yield "sweep --cluster", _without("distributed", "'vdnnsim[cluster]'")


def _version(package: str) -> str:
    # A third of the time of `--help`, if imported at the top.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _without(module: str, package: str) -> str:
    """Return why a module cannot be imported; empty if it can."""
    from vdnnsim.files.messages import describe_exception

    try:
        import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name == module.partition(".")[0]:
            return f"pip install {package}"
        return f"is installed, but {missing.name} is missing"
    # As of C++ that was built for another PyTorch.
    except Exception as failure:  # noqa: BLE001  # whatever its code raises
        return f"is installed, but cannot be imported: {describe_exception(failure)}"
    return ""


def _lacking(requirement: Callable[[], object]) -> str:
    try:
        requirement()
    except DeviceError as refusal:
        return str(refusal)
    return ""
