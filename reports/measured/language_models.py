"""GPT-2, a Llama-style decoder, BERT, T5 and a GRU, as their users write them; each returns its loss."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GPTBlock(nn.Module):
    """A block of GPT-2: attention and a product of four times the width, each behind a normalization."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (each.view(b, t, self.heads, -1).transpose(1, 2) for each in self.qkv(self.norm1(x)).split(d, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with tied embeddings and no dropout."""

    def __init__(self, width: int, layers: int, heads: int, vocabulary: int = 50304, longest: int = 1024) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(GPTBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for each in self.parameters():
            if each.dim() > 1:
                nn.init.normal_(each, std=0.02)

    def logits(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(ids).flatten(0, 1), targets.flatten())


class GPTWithLogits(GPT):
    """As its public script has it, which returns the logits, too; here targets are the tokens."""

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        logits = self.logits(ids)
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten()), logits


def gpt2_124m() -> GPTWithLogits:
    """GPT-2 as before PyTorch 2.11, which takes flash attention on Hopper as well."""
    torch.backends.cuda.enable_cudnn_sdp(False)
    return GPTWithLogits(768, 12, 12)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class LlamaBlock(nn.Module):
    """A block of a Llama-style decoder: grouped attention with rotary embeddings, SwiGLU, RMSNorm."""

    def __init__(self, width: int, heads: int, key_heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.head = heads, key_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, key_heads * self.head, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, d = x.shape
        h = self.norm1(x)
        q = rotated(self.q(h).view(b, t, self.heads, -1).transpose(1, 2), cos, sin)
        k = rotated(self.k(h).view(b, t, self.key_heads, -1).transpose(1, 2), cos, sin)
        v = self.v(h).view(b, t, self.key_heads, -1).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.feed_forward(self.norm2(x))

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Llama(nn.Module):
    def __init__(
        self, width: int, layers: int, heads: int, key_heads: int, hidden: int, vocabulary: int = 32000
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, key_heads, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        angles = torch.outer(torch.arange(4096.0), 10000.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for each in self.parameters():
            if each.dim() > 1:
                nn.init.normal_(each, std=0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x, t = self.tokens(ids), ids.shape[1]
        cos, sin = (each[:t].to(torch.bfloat16) for each in (self.cos, self.sin))
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class EncoderBlock(nn.Module):
    """A block of BERT: normalizations behind the sums, no dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (each(x).view(b, t, self.heads, -1).transpose(1, 2) for each in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = self.norm1(x + self.o(mixed.transpose(1, 2).reshape(b, t, d)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class BERT(nn.Module):
    """A masked language model."""

    def __init__(self, width: int, layers: int, heads: int, vocabulary: int = 30522) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.norm0 = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.transform, self.norm, self.head = (
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.Linear(width, vocabulary),
        )

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.norm0(self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(F.gelu(self.transform(x))))
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


class T5Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, other: Tensor, bias: Tensor | None) -> Tensor:
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = (each(other).view(b, other.shape[1], self.heads, -1).transpose(1, 2) for each in (self.k, self.v))
        scores = q @ k.transpose(-1, -2)
        if bias is not None:
            scores = scores + bias
        weights = F.softmax(scores.float(), -1).to(v.dtype)
        return self.o((weights @ v).transpose(1, 2).reshape(b, t, d))


class T5Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int, *, decodes: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attend = T5Attention(width, heads)
        self.cross, self.norm3 = (T5Attention(width, heads), nn.RMSNorm(width)) if decodes else (None, None)
        self.up, self.down = nn.Linear(width, hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, bias: Tensor, encoded: Tensor | None = None) -> Tensor:
        h = self.norm1(x)
        x = x + self.attend(h, h, bias)
        if self.cross is not None and self.norm3 is not None and encoded is not None:
            x = x + self.cross(self.norm3(x), encoded, None)
        return x + self.down(F.relu(self.up(self.norm2(x))))


class T5(nn.Module):
    """An encoder and a decoder with relative positions as a bias, and softmax in float32."""

    def __init__(self, width: int, layers: int, heads: int, hidden: int, vocabulary: int = 32128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.near, self.past = nn.Embedding(32, heads), nn.Embedding(32, heads)
        self.encoder = nn.ModuleList(T5Block(width, heads, hidden, decodes=False) for _ in range(layers))
        self.decoder = nn.ModuleList(T5Block(width, heads, hidden, decodes=True) for _ in range(layers))
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.scale = width**-0.5

    def bias(self, table: nn.Embedding, t: int, *, causal: bool) -> Tensor:
        at = torch.arange(t, device=table.weight.device)
        apart = at[None] - at[:, None]
        bucket = (apart.abs() / (t / 15)).long().clamp(max=15) + 16 * (apart > 0)
        bias = table(bucket).permute(2, 0, 1)[None]
        return bias.masked_fill(apart > 0, -math.inf) if causal else bias

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x, bias = self.tokens(ids), self.bias(self.near, ids.shape[1], causal=False)
        for block in self.encoder:
            x = block(x, bias)
        encoded, y = self.norm1(x), self.tokens(targets)
        bias = self.bias(self.past, targets.shape[1], causal=True)
        for block in self.decoder:
            y = block(y, bias, encoded)
        scores = F.linear(self.norm2(y) * self.scale, self.tokens.weight)
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


class GRU(nn.Module):
    def __init__(self, width: int = 1024, vocabulary: int = 32000) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.network = nn.GRU(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.network(self.tokens(ids))[0]).flatten(0, 1), targets.flatten())
