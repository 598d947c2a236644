"""Train DeepLabV3 of torchvision with what autograd saves kept in pinned memory of the CPU."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--image", type=int, default=256)
parser.add_argument("--steps", type=int, default=4)
args = parser.parse_args()

model = torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, aux_loss=True)
model = model.to("cuda").train()
optimizer = torch.optim.SGD(
    [
        {"params": model.backbone.parameters()},
        {"params": model.classifier.parameters()},
        {"params": model.aux_classifier.parameters(), "lr": 0.1},
    ],
    lr=0.01,
    momentum=0.9,
)
for _ in range(args.steps):
    images = torch.randn(args.batch, 3, args.image, args.image).cuda()
    masks = torch.randint(0, 21, (args.batch, args.image, args.image)).cuda()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        answer = model(images)
        loss = torch.nn.functional.cross_entropy(answer["out"], masks, ignore_index=255)
        loss = loss + 0.5 * torch.nn.functional.cross_entropy(answer["aux"], masks, ignore_index=255)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
