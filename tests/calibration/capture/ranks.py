"""A real process of two, which runs a model under FSDP over gloo and writes its collectives.

python -m tests.calibration.capture.ranks RANK PORT LAYOUT
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import distributed, nn
from torch._ops import OpOverload

from calibration.capture.parallel.collectives import exchange_of
from calibration.capture.parallel.layout import parse_layout
from calibration.capture.parallel.world import rank_of
from calibration.capture.program import Program, prepare
from calibration.capture.schemas import OperatorMode
from vdnnsim.dnn.collective import Collective
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

SAMPLES, WIDTH, CLASSES = 6, 16, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow: torch.Tensor = self.narrow(torch.relu(self.wide(x)))
        return x + narrow


class Net(nn.Module):
    """Two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        head: torch.Tensor = self.head(x)
        return head


def program(layout: str, precision: Precision = Precision.FLOAT32, **others: Any) -> Program:  # noqa: ANN401 - fields
    return Program(
        name="net",
        make_model=Net,
        make_inputs=lambda: ((torch.randn(SAMPLES, WIDTH),), {}),
        loss=lambda y: y.float().sum(),
        optimizer="adamw",
        mode=Mode.TRAINING,
        precision=precision,
        batch_size=SAMPLES,
        layout=parse_layout(layout) if layout else None,
        **others,
    )


class Collectives(OperatorMode):  # type: ignore[no-untyped-call]
    """Collects the collectives within."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Collective] = []

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        result = func(*args, **kwargs)
        exchange = exchange_of(func, args, kwargs, result)
        if exchange is not None and exchange.collective is not None:
            self.found.append(exchange.collective)
        return result


def main() -> None:
    rank, port, layout = sys.argv[1:]
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": "2"}
    distributed.init_process_group("gloo")
    with rank_of(2):
        torch.manual_seed(0)
        asked = program(layout)
        iteration = prepare(asked, asked.make_model(), "cpu", foreach=True)
        iteration.run(lambda _: None)
        with Collectives() as collectives:
            iteration.run(lambda _: None)
    distributed.destroy_process_group()
    sys.stdout.buffer.write(msgspec.json.encode(collectives.found))


if __name__ == "__main__":
    main()
