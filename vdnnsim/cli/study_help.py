"""What the help of `sweep` and `whatif` says of the files and the keys that they take.

The study and the values of a scenario stand here as text, which a test holds against what reads them. What figures of a
machine there are is looked up when the help is asked for, so that no other `--help` waits for it.
"""

from typing import Final

import click

# Click keeps the lines of a paragraph that begins with \b.
_VALUES: Final = """\b
What can be varied, the values of a scenario as they stand there:
  workload.network, workload.step (a file of a captured model),
  workload.batch_size, workload.precision (or
  workload.element_type, its older name), workload.optimizer,
  workload.mode, hardware, gpus, gradients, memory_model,
  pinned_memory
and figures of the machine, as in its profile:
  gpu.compute_speed         a factor: kernels take their time over it
  link.bandwidth            h2d and d2h at once, as 300 GB/s
"""

STUDY: Final = """\b
A study:
  schema_version: 1
  scenario: vgg416.yaml       # from this file; or a scenario as a mapping
  axes:                       # the grid; the last one varies fastest
    policy: [vdnn_conv(p), checkpoint, {policy: accumulate, steps: 2}]
    gpu.memory: [12 GiB, 24 GiB]
    link.bandwidth: {from: 16 GB/s, to: 512 GB/s, factor: 2}
                              # or step: 8 GB/s, or count: 5
  where: policy != checkpoint or gpu.memory >= 24 GiB
                              # optional: which points to keep
  pictures:                   # optional: DIR/speed.png, of columns of results
    - name: speed
      title: What a faster link buys
      kind: lines             # or heat_map with value, or pareto
      x: link.bandwidth_bytes_per_s
      y: performance_ratio
      by: policy              # also: panels, where, subtitle, x_label, y_label
      marks: {PCIe gen4: 26 GB/s}
"""


class StudyCommand(click.Command):
    """A command whose help ends with the keys that can be varied."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what else the help says, and then the keys."""
        super().format_epilog(ctx, formatter)
        click.Command(None, epilog=keys_help()).format_epilog(ctx, formatter)


def keys_help() -> str:
    """Return a list of all that can be varied."""
    from vdnnsim.hardware.figures import FIGURES

    lines = [_VALUES]
    for figure in FIGURES:
        if figure.stated.decides:
            paths = [f"{figure.path}.{name}" for name in figure.names or ["NAME"]] if figure.below else [figure.path]
            lines += [f"  {path:<24}  {figure.stated.words}, as {figure.stated.range.example}\n" for path in paths]
    return "".join(lines)
