"""A topology as the YAML section that `vdnnsim.hardware.topology_section` reads back."""

from collections.abc import Iterator, Sequence
from typing import Final

from vdnnsim.hardware.figure_text import figure_lines, quoted
from vdnnsim.hardware.server import Figure
from vdnnsim.hardware.topology import Topology

FIGURES_AT: Final = "topology.links."
"""How the key paths of a topology's figures begin; then the type of link follows, in quotes if it has blanks."""


def topology_lines(topology: Topology, figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the section.

    Args:
        topology: of the server.
        figures: all that its links are stated with, those of a type together.
    """
    sharing = {link.kind: link.sharing.value for link in topology.links.values()}
    yield from ("", "topology:", "  links:")
    written: set[str] = set()
    for figure in figures:
        stated_kind, _, key = figure.path.removeprefix(FIGURES_AT).rpartition(".")
        kind = stated_kind.strip("'")
        if kind not in written:
            written.add(kind)
            yield from (f"    {kind}:", f"      sharing: {sharing[kind]}")
        yield from figure_lines("      ", key, figure)
    assert written == set(sharing), "links without figures"
    yield "  nodes:"
    for node in topology.nodes:
        hangs = f", parent: {node.parent}, link: {quoted(node.link.kind)}" if node.link is not None else ""
        yield f"    {node.name}: {{kind: {node.kind.value}{hangs}}}"
    if topology.peers:
        yield "  peers:"
        for peer in topology.peers:
            yield f"    - {{gpus: [{peer.first}, {peer.second}], link: {quoted(peer.link.kind)}}}"
    if topology.ports:
        names = ", ".join(port.gpu for port in topology.ports)
        yield from ("  fabric:", f"    gpus: [{names}]", f"    link: {quoted(topology.ports[0].link.kind)}")
