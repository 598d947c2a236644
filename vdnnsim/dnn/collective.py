"""Collectives: exchanges of data between the ranks of a process group, as one rank takes part in them."""

from enum import Enum

import msgspec


class CollectiveKind(Enum):
    """What a collective does, by the names of torch.distributed and NCCL; or what a rank does with its host alone."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    SEND = "send"
    RECEIVE = "receive"
    FROM_HOST = "from_host"
    TO_HOST = "to_host"
    ON_HOST = "on_host"


class Collective(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A collective of one process group.

    The group has the global ranks r, r + stride, r + 2 stride ..., as a dimension of a device mesh has them. All groups
    of that dimension do the same at the same time.

    Attributes:
        nbytes: of the whole buffer: what an all-gather returns, what a reduce-scatter takes, what an all-reduce, a
            broadcast, a send and a receive move, what one rank gives to an all-to-all, its own part included, what is
            copied from or to the host, and what an operation on the host reads and writes of its memory.
        element_type: of the buffer, in which a reduction adds.
        ranks: how many take part; 2 in a send and a receive, 1 in what a rank does with its host.
        stride: between neighbours: 1 where ranks follow each other, as on one host. Of a send and a receive it leads to
            the other rank, and is below 0 where that has a lower number.
    """

    kind: CollectiveKind
    nbytes: int
    element_type: str
    ranks: int
    stride: int = 1

    @property
    def is_point_to_point(self) -> bool:
        """Whether it is a send or a receive."""
        return self.kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE)

    @property
    def is_of_host(self) -> bool:
        """Whether no other rank takes part, but the host."""
        return self.kind in (CollectiveKind.FROM_HOST, CollectiveKind.TO_HOST, CollectiveKind.ON_HOST)
