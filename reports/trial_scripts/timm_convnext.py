"""Train a ConvNeXt of timm: bfloat16 autocast, channels last, AdamW, an averaged copy of the weights."""

import argparse

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV2

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="convnext_tiny")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()

torch.backends.cudnn.benchmark = True
model = timm.create_model(args.model, pretrained=False, num_classes=1000, drop_path_rate=0.1)
model = model.cuda().to(memory_format=torch.channels_last)
average = ModelEmaV2(model, decay=0.9998)
optimizer = create_optimizer_v2(model, opt="adamw", lr=4e-3, weight_decay=0.05)
scheduler = CosineLRScheduler(optimizer, t_initial=args.steps, warmup_t=2)
mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=1000)
criterion = SoftTargetCrossEntropy().cuda()

for step in range(args.steps):
    images = torch.randn(args.batch, 3, 224, 224).cuda(non_blocking=True)
    labels = torch.randint(0, 1000, (args.batch,)).cuda(non_blocking=True)
    images, targets = mixup(images, labels)
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), targets)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    average.update(model)
    scheduler.step(step)
    torch.cuda.synchronize()
    print(step, loss.item())
