"""A vision transformer, a U-Net of a diffusion model, and networks of torchvision; each returns its loss."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reports.measured.language_models import GPTBlock


class ViTBlock(GPTBlock):
    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (each.view(b, t, self.heads, -1).transpose(1, 2) for each in self.qkv(self.norm1(x)).split(d, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, patch: int = 16, classes: int = 1000) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.mark = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, (224 // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(ViTBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.mark.expand(x.shape[0], -1, -1), x), 1) + self.places
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]), targets)


class Residual(nn.Module):
    def __init__(self, before: int, after: int, embedding: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(embedding, after)
        self.norm2, self.conv2 = nn.GroupNorm(32, after), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class Attend(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.GroupNorm(32, width),
            nn.Conv2d(width, 3 * width, 1),
            nn.Conv2d(width, width, 1),
        )
        self.heads = width // 64

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = (
            each.reshape(b, self.heads, 64, h * w).transpose(2, 3) for each in self.qkv(self.norm(x)).chunk(3, 1)
        )
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(b, c, h, w))


class UNet(nn.Module):
    """A U-Net of a diffusion model on 4 x 64 x 64 latents."""

    def __init__(self, width: int = 192, growth: tuple[int, ...] = (1, 2, 3, 4)) -> None:
        super().__init__()
        embedding = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        widths, now = [width], width
        for level, factor in enumerate(growth):
            for _ in range(2):
                attends = level > 0
                self.down.append(
                    nn.ModuleList(
                        [Residual(now, width * factor, embedding), Attend(width * factor) if attends else nn.Identity()]
                    )
                )
                now = width * factor
                widths.append(now)
            if level < len(growth) - 1:
                self.down.append(nn.ModuleList([nn.Conv2d(now, now, 3, 2, 1)]))
                widths.append(now)
        self.middle1, self.attend, self.middle2 = (
            Residual(now, now, embedding),
            Attend(now),
            Residual(now, now, embedding),
        )
        for level, factor in reversed(list(enumerate(growth))):
            for _ in range(3):
                self.up.append(
                    nn.ModuleList(
                        [
                            Residual(now + widths.pop(), width * factor, embedding),
                            Attend(width * factor) if level > 0 else nn.Identity(),
                        ]
                    )
                )
                now = width * factor
            if level > 0:
                self.up.append(nn.ModuleList([nn.Conv2d(now, now, 3, padding=1)]))
        self.norm, self.last = nn.GroupNorm(32, now), nn.Conv2d(now, 4, 3, padding=1)

    def forward(self, images: Tensor, noise: Tensor, at: Tensor) -> Tensor:
        half = self.width // 2
        angles = at[:, None] * torch.exp(-math.log(10000) * torch.arange(half, device=at.device) / half)
        time = self.time(torch.cat((angles.cos(), angles.sin()), 1))
        x = self.first(images + noise)
        kept = [x]
        for each in self.down:
            x = each[1](each[0](x, time)) if len(each) == 2 else each[0](x)
            kept.append(x)
        x = self.middle2(self.attend(self.middle1(x, time)), time)
        for each in self.up:
            if len(each) == 2:
                x = each[1](each[0](torch.cat((x, kept.pop()), 1), time))
            else:
                x = each[0](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return F.mse_loss(self.last(F.silu(self.norm(x))), noise)


class Classified(nn.Module):
    """A network of torchvision and its loss."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import torchvision

        self.network = torchvision.models.get_model(name, weights=None)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.network(images), targets)
