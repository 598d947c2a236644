"""How one element of a map or weight is stored."""

from enum import Enum


class ElementType(Enum):
    """The element types that a workload may have."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is ElementType.FLOAT32 else 2
