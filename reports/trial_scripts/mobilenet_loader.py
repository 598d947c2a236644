"""Train a MobileNetV2 from a DataLoader with workers and pinned memory, a validation after each epoch."""

import argparse

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class MadeUpImages(Dataset):
    """As many random images with labels as asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 224, 224, generator=generator), index % 10


def train(model, loader, criterion, optimizer, device):
    model.train()
    running = 0.0
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        running += loss.item() * images.size(0)
    return running / len(loader.dataset)


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    correct = 0
    for images, labels in loader:
        predicted = model(images.to(device)).argmax(dim=1)
        correct += (predicted == labels.to(device)).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {"batch_size": args.batch, "num_workers": args.workers, "pin_memory": True}
    train_loader = DataLoader(MadeUpImages(args.batch * 3 + 5), shuffle=True, drop_last=False, **options)
    test_loader = DataLoader(MadeUpImages(args.batch * 2), **options)
    model = torchvision.models.mobilenet_v2(weights=None, num_classes=10).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.045, momentum=0.9, weight_decay=4e-5)
    for epoch in range(args.epochs):
        loss = train(model, train_loader, criterion, optimizer, device)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {validate(model, test_loader, device):.2%}")


if __name__ == "__main__":
    main()
