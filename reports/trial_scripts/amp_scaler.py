"""Train Inception v3 of torchvision under float16 autocast with a gradient scaler, its auxiliary loss included."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()

torch.backends.cudnn.benchmark = True
model = torchvision.models.inception_v3(weights=None, init_weights=False).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler()
criterion = torch.nn.CrossEntropyLoss()
for step in range(args.steps):
    images = torch.randn(args.batch, 3, 299, 299, pin_memory=True).cuda(non_blocking=True)
    labels = torch.randint(0, 1000, (args.batch,), pin_memory=True).cuda(non_blocking=True)
    optimizer.zero_grad()
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        logits, auxiliary = model(images)
        loss = criterion(logits, labels) + 0.4 * criterion(auxiliary, labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if torch.isnan(loss):
        raise SystemExit("the loss is not a number")
    print(f"{step}: {loss.item():.3f}, scale {scaler.get_scale():g}")
