"""Train a ResNet-50 of torchvision on made-up images: SGD with momentum, a weight decay, a schedule."""

import argparse

import torch
import torchvision
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="resnet50")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--image", type=int, default=224)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
args = parser.parse_args()

device = torch.device("cuda")
model = torchvision.models.get_model(args.model, weights=None, num_classes=1000).to(device)
criterion = nn.CrossEntropyLoss()
if args.optimizer == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
else:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30)

model.train()
for step in range(args.steps):
    images = torch.randn(args.batch, 3, args.image, args.image).to(device)
    labels = torch.randint(0, 1000, (args.batch,)).to(device)
    optimizer.zero_grad()
    output = model(images)
    if args.model.startswith("inception"):
        output, auxiliary = output
        loss = criterion(output, labels) + 0.4 * criterion(auxiliary, labels)
    else:
        loss = criterion(output, labels)
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.3f}")
scheduler.step()
