"""The commands of `new`: files to fill in."""

from pathlib import Path

import click

from vdnnsim.errors import OutputError, ProfileError


@click.group()
def new() -> None:
    """Write a file to fill in."""


@new.command()
@click.argument("name")
def hardware(name: str) -> None:
    """Write hw_profiles/NAME.yaml, a hardware profile to fill in; `vdnnsim check` says what is missing in it."""
    from vdnnsim.files.atomic import replace_file
    from vdnnsim.files.messages import quote
    from vdnnsim.hardware.new_profile import template
    from vdnnsim.hardware.profile import is_profile_name

    if not is_profile_name(name):
        raise ProfileError(f"found {quote(name)}, expected a name of letters, digits and any of _.-, as rtx_5090")
    path = Path("hw_profiles") / f"{name}.yaml"
    if path.exists():
        raise OutputError(f"{path}: is there already; move it away, or take another name")
    path.parent.mkdir(exist_ok=True)
    replace_file(path, template(name).encode())
    click.echo(f"wrote {path}; fill in every ..., then: vdnnsim check {path}", err=True)
