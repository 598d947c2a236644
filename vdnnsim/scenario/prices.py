"""What an hour of each machine costs: a file of the user's, for none is shipped.

    schema_version: 1
    currency: EUR
    per_hour:             # of one GPU, with its share of the host
      rtx_4090: 0.39
      a100_80gb: 1.79
    samples_per_epoch: 1281167

`samples_per_epoch` may be left out: costs are then of a thousand steps. An hour of a machine that you buy costs its
price, and its power, over the hours that you will use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vdnnsim.errors import ScenarioError
from vdnnsim.files.value import Entry
from vdnnsim.files.yaml_file import read_yaml

SCHEMA_VERSION: Final = 1
_LARGEST_PRICE: Final = 1e6
_LARGEST_EPOCH: Final = 10**15


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour costs.

    Attributes:
        per_hour: of one GPU, by the name of the profile.
        samples_per_epoch: None where costs are of a thousand steps.
        source: name and SHA-256 of the file.
    """

    currency: str
    per_hour: Mapping[str, float]
    samples_per_epoch: int | None
    source: tuple[str, str]


def read_prices(path: Path) -> Prices:
    """Read a file of prices.

    Raises:
        ScenarioError: it cannot be read, or something in it is wrong.
    """
    file = read_yaml(path, ScenarioError)
    file.root.check_schema_version(SCHEMA_VERSION)
    keys = file.root.members(("schema_version", "currency", "per_hour"), ("samples_per_epoch",))
    prices = keys["per_hour"].named_members("machines and what an hour of each costs")
    if not prices:
        raise keys["per_hour"].expected("the price of at least one machine")
    epoch = keys["samples_per_epoch"].integer(1, _LARGEST_EPOCH) if "samples_per_epoch" in keys else None
    per_hour = {name: _price(price) for name, price in prices.items()}
    return Prices(keys["currency"].text(), per_hour, epoch, (file.name, file.sha256))


def _price(entry: Entry) -> float:
    value = entry.value
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LARGEST_PRICE:
        raise entry.expected(f"a number from 0 to {_LARGEST_PRICE:g}, the price of an hour")
    return float(value)
