"""How one element of a map or weight is stored, and in what precision a workload computes."""

from enum import Enum


class ElementType(Enum):
    """How an element is stored and computed with; `tf32` is stored as float32 and multiplied in fewer bits."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return 4 if self in (ElementType.FLOAT32, ElementType.TF32) else 2


class Precision(Enum):
    """In what a workload computes: one element type throughout, or PyTorch's mixed precision with a narrow one.

    Under mixed precision weights, their gradients and optimizer states are float32; products are computed in the narrow
    type, of which weights have copies while forward and backward need them; losses and normalizations of layers stay in
    float32 (torch.autocast).
    """

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    AMP_BFLOAT16 = "amp_bfloat16"
    AMP_FLOAT16 = "amp_float16"

    @property
    def element_type(self) -> ElementType:
        """Of weights, and of maps where precision is not mixed."""
        return ElementType.FLOAT32 if self.autocast else ElementType(self.value)

    @property
    def autocast(self) -> ElementType | None:
        """The narrow type of mixed precision; None without it."""
        return ElementType(self.value.removeprefix("amp_")) if self.value.startswith("amp_") else None
