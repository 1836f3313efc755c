"""Trains the network of this example with PyTorch and saves its weights as `mnist.pt`.

    python train.py

Requires `torch` and `numpy`. The images are those of this repository, in `crates/data/mnist`.
"""

import gzip
from pathlib import Path

import numpy
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parents[1] / "crates" / "data" / "mnist"
EPOCHS = 6


class Net(nn.Module):
    """Two convolutions with batch norm, then one linear layer. Input `[batch, 1, 28, 28]`; returns logits."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Linear(16 * 7 * 7, 10)

    def forward(self, images):
        return self.classifier(self.features(images).flatten(1))


def load(split):
    """Returns normalized images `[count, 1, 28, 28]` and labels `[count]` of a split: `train` or `t10k`."""
    with gzip.open(IMAGES / f"{split}-images-idx3-ubyte.gz") as file:
        pixels = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(IMAGES / f"{split}-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)
    images = (torch.from_numpy(pixels.copy()).float() / 255 - 0.1307) / 0.3081
    return images, torch.from_numpy(labels.copy()).long()


def main():
    torch.manual_seed(42)
    torch.set_num_threads(1)
    images, labels = load("train")
    model = Net()
    steps = EPOCHS * (len(images) // 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images))
        for start in range(0, len(images) - 127, 128):
            batch = order[start : start + 128]
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)

    model.eval()
    images, labels = load("t10k")
    with torch.no_grad():
        logits = model(images)
    print(f"test accuracy: {100 * (logits.argmax(1) == labels).float().mean().item():.2f} %")
    print("logits of image 0:", [round(value, 4) for value in logits[0].tolist()])
    torch.save(model.state_dict(), HERE / "mnist.pt")


if __name__ == "__main__":
    main()
