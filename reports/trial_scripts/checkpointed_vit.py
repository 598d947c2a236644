"""Train a vision transformer of torchvision whose blocks are recomputed in backward."""

import argparse
from functools import partial

import torch
import torchvision
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--whole", action="store_true", help="keep what blocks save")
args = parser.parse_args()

model = torchvision.models.vit_b_16(weights=None).cuda()
if not args.whole:
    for block in model.encoder.layers:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
loss_of = torch.nn.CrossEntropyLoss()
for step in range(args.steps):
    images = torch.randn(args.batch, 3, 224, 224, device="cuda")
    labels = torch.randint(1000, (args.batch,), device="cuda")
    loss = loss_of(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 2 == 0:
        print(step, float(loss))
