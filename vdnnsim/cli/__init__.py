"""The command line: `vdnnsim` and its commands, related ones in one module.

Nothing imports this package. Begin with `run` in `replay.py`.

Exit status: 0 done (a network that does not fit is a result), 1 wrong input, or points of a study or policies of a
user's own that failed, in one line on standard error, 2 usage, 3 a check failed, 4 nothing fits under --require-fit, 5
PyTorch reserved more than --memory of `apply`. Results go to standard output, notices to standard error. Slow imports
are inside the commands, so that `--help` is fast.
"""

import codecs
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType
from typing import Final

try:
    import click

    from vdnnsim.cli.capture import capture
    from vdnnsim.cli.captures import KEPT
    from vdnnsim.cli.catalog import doctor, examples, list_, new
    from vdnnsim.cli.claims import claims
    from vdnnsim.cli.devices import calibrate, validate
    from vdnnsim.cli.output import discard_output
    from vdnnsim.cli.parallel import parallel
    from vdnnsim.cli.programs import apply, pretend
    from vdnnsim.cli.recordings import read
    from vdnnsim.cli.replay import check, compare, run, what_if
    from vdnnsim.cli.search import frontier, machines, max_batch
    from vdnnsim.cli.study import sweep
    from vdnnsim.engine.garbage_collection import collect_rarely
    from vdnnsim.errors import VdnnsimError
except KeyboardInterrupt:
    sys.exit("Aborted!")


_SPELLED: Final = "vdnnsim.spelled"
_MEANT: Final = {
    **dict.fromkeys(("--seq-len", "--seq-length", "--sequence-length", "--max-length", "--context"), "--tokens"),
    **dict.fromkeys(("--gpu", "--card", "--device"), "--hardware"),
    **dict.fromkeys(("--dtype", "--amp"), "--precision"),
    **dict.fromkeys(("--gradient-accumulation-steps", "--grad-accum"), "--accumulate"),
    **dict.fromkeys(("--output", "--output-dir"), "--out"),
}
"""Options by their names elsewhere."""
_SIGNS: Final = {"\N{PLUS-MINUS SIGN}": "+-", "\N{MULTIPLICATION SIGN}": "x"}


def _spelled(failure: UnicodeError) -> tuple[str | bytes, int]:
    """Return a sign of ours in ASCII, another character as an escape; an error handler of codecs."""
    assert isinstance(failure, UnicodeEncodeError), "streams of text encode"
    sign = _SIGNS.get(failure.object[failure.start])
    return codecs.backslashreplace_errors(failure) if sign is None else (sign, failure.start + 1)


codecs.register_error(_SPELLED, _spelled)


def main() -> None:
    run_command(cli)


def run_command(command: click.Command) -> None:
    """Run a command; wrong input ends in one line and exit status 1."""
    collect_rarely()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Names of files may not be encodable, nor signs in ASCII.
            stream.reconfigure(errors=_SPELLED)
    try:
        with _ended_as_by_ctrl_c():
            command()
    except KeyboardInterrupt:
        sys.exit("Aborted!")
    except MemoryError:
        click.echo("vdnnsim: out of host memory", err=True)
        sys.exit(1)
    except OSError as failure:
        discard_output()
        click.echo(f"vdnnsim: {failure}", err=True)
        sys.exit(1)
    except VdnnsimError as error:
        click.echo(f"vdnnsim: {error}", err=True)
        # Frames of a user's policy.
        for note in getattr(error, "__notes__", ()):
            click.echo(note, err=True, nl=False)
        sys.exit(1)


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as an interrupt, so that files are cleaned up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    asked = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in asked:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in asked:
            signal.signal(each, signal.SIG_DFL)


class _Commands(click.Group):
    """Commands that know other tools' names of their options."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            kept = (*ctx.meta.get(KEPT, ()), *getattr(stop, "__notes__", ()))
            if kept:
                click.echo(f"\nkept {' and '.join(kept)}; the same command goes on from there", err=True)
            raise
        except click.NoSuchOption as failure:
            meant = _MEANT.get(failure.option_name)
            if (
                meant is None
                or failure.ctx is None
                or not any(meant in each.opts for each in failure.ctx.command.params)
            ):
                raise
            # Its own suggestions are but similar names.
            raise click.UsageError(f"{failure.message} Did you mean {meant!r}?", failure.ctx) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="vdnnsim", prog_name="vdnnsim")
def cli() -> None:
    """Simulate how a GPU trains a deep network that does not fit into its memory."""


for _command in (
    run, compare, machines, parallel, max_batch, frontier, list_, check, new, examples, doctor, claims, calibrate,
    validate, sweep, what_if, pretend, apply, capture, read,
):  # fmt: skip
    cli.add_command(_command)
