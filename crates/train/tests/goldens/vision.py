"""Writes vision.json: values of torchmetrics, pycocotools and SciPy for the tests of vision metrics.

Run from anywhere, with PyTorch 2.13, torchmetrics 1.9, pycocotools 2.0 and SciPy:

    python3 crates/train/tests/goldens/vision.py

Inputs and weights are not stored: both sides compute them by `uniform`, exactly in f32. PyTorch
computes in f64 where the metric does not fix a dtype.
"""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from scipy.linalg import sqrtm
from torchmetrics.classification import MulticlassJaccardIndex
from torchmetrics.functional.image import dists, lpips
from torchmetrics.image import (
    MultiScaleStructuralSimilarityIndexMeasure,
    PeakSignalNoiseRatio,
    StructuralSimilarityIndexMeasure,
)
from torchmetrics.image.kid import poly_mmd
from torchmetrics.segmentation import DiceScore, GeneralizedDiceScore

BATCHES = 3


def uniform(shape, seed):
    """Numbers from 0 to 1 that are multiples of 2^-24: a hash of index and seed."""
    mask = np.uint64(0xFFFFFFFF)
    h = np.arange(int(np.prod(shape)), dtype=np.uint64) * np.uint64(2654435761)
    h = (h + np.uint64(seed) * np.uint64(40503)) & mask
    h ^= h >> np.uint64(15)
    h = (h * np.uint64(2246822519)) & mask
    h ^= h >> np.uint64(13)
    h = (h * np.uint64(3266489917)) & mask
    h ^= h >> np.uint64(16)
    return torch.from_numpy(((h >> np.uint64(8)).astype(np.float64) / 2**24).reshape(shape))


def classes(shape, count, seed):
    return (uniform(shape, seed) * count).floor().long()


def segmentation():
    batches = [(classes((2, 6, 5), 4, 10 + i), classes((2, 6, 5), 4, 20 + i)) for i in range(BATCHES)]
    # Half of the pixels agree.
    batches = [(torch.where(uniform(p.shape, 30 + i) < 0.5, p, t), t) for i, (p, t) in enumerate(batches)]

    def of(metric):
        for predictions, targets in batches:
            metric.update(predictions, targets)
        return metric.compute().tolist()

    values = {}
    for average in ("macro", "micro", "weighted", "none"):
        for level in ("samplewise", "global"):
            for background in (True, False):
                metric = DiceScore(5, background, average, level, input_format="index")
                # A class that never occurs is NaN.
                values[f"dice {average} {level} {background}"] = [
                    None if np.isnan(x) else x for x in np.atleast_1d(of(metric))
                ]
    for weight in ("square", "simple", "linear"):
        values[f"generalized {weight}"] = of(GeneralizedDiceScore(4, weight_type=weight, input_format="index"))
    values["generalized per class"] = of(GeneralizedDiceScore(4, per_class=True, input_format="index"))
    values["iou"] = of(MulticlassJaccardIndex(4, average="macro"))
    values["iou per class"] = of(MulticlassJaccardIndex(4, average="none"))
    return values


def image_pairs(shape, noise=0.25):
    """Targets from 0 to 1 with horizontal waves, and predictions with noise."""
    pairs = []
    for i in range(BATCHES):
        targets = uniform(shape, 40 + i)
        predictions = targets * (1 - noise) + uniform(shape, 50 + i) * noise
        pairs.append((predictions.float(), targets.float()))
    return pairs


def similarity():
    def of(metric, shape):
        for predictions, targets in image_pairs(shape):
            metric.update(predictions.double(), targets.double())
        return metric.compute().item()

    small, large = (2, 3, 24, 20), (1, 1, 176, 190)
    three = (0.3, 0.3, 0.4)
    return {
        "psnr": of(PeakSignalNoiseRatio(data_range=1.0), small),
        "psnr per image": of(PeakSignalNoiseRatio(data_range=1.0, dim=(1, 2, 3)), small),
        "ssim": of(StructuralSimilarityIndexMeasure(data_range=1.0), small),
        "ssim 9": of(StructuralSimilarityIndexMeasure(data_range=2.0, sigma=1.0, k1=0.02, k2=0.05), small),
        "ms-ssim": of(MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0), large),
        "ms-ssim 3": of(
            MultiScaleStructuralSimilarityIndexMeasure(data_range=1.0, betas=three), (2, 1, 48, 50)
        ),
    }


def detection():
    """Boxes in multiples of a quarter pixel; the detections are moved objects and boxes of no object."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    generator = np.random.default_rng(7)
    images = []
    for _ in range(12):
        count = generator.integers(0, 9)
        sizes = np.exp(generator.uniform(np.log(8), np.log(180), (count, 2)))
        corners = generator.uniform(0, 300, (count, 2))
        targets = np.round(np.concatenate([corners, corners + sizes], 1) * 4) / 4
        labels = generator.integers(0, 4, count)
        crowds = (generator.uniform(size=count) < 0.1).astype(int)
        areas = np.round((targets[:, 2] - targets[:, 0]) * (targets[:, 3] - targets[:, 1]) * 0.7)
        moved = targets + np.round(generator.normal(0, 0.06, targets.shape) * sizes.repeat(2, 1) * 4) / 4
        boxes, box_labels = [], []
        for box, label in zip(moved, labels):
            for _ in range(generator.integers(0, 3)):
                boxes.append(box)
                box_labels.append(int(label) if generator.uniform() < 0.9 else int(generator.integers(0, 4)))
        for _ in range(generator.integers(0, 4)):
            corner = np.round(generator.uniform(0, 300, 2))
            boxes.append(np.concatenate([corner, corner + np.round(generator.uniform(10, 90, 2))]))
            box_labels.append(int(generator.integers(0, 4)))
        scores = np.round(generator.uniform(0.05, 1, len(boxes)) * 64) / 64
        images.append(
            {
                "boxes": [list(map(float, box)) for box in boxes],
                "scores": scores.tolist(),
                "labels": box_labels,
                "target_boxes": targets.tolist(),
                "target_labels": labels.tolist(),
                "target_crowds": crowds.tolist(),
                "target_areas": areas.tolist(),
            }
        )

    def evaluated(own_areas):
        def xywh(box):
            return [box[0], box[1], box[2] - box[0], box[3] - box[1]]

        objects, detections = [], []
        for place, image in enumerate(images):
            for j, box in enumerate(image["target_boxes"]):
                box = xywh(box)
                objects.append(
                    {
                        "id": len(objects) + 1,
                        "image_id": place,
                        "bbox": box,
                        "category_id": image["target_labels"][j],
                        "area": box[2] * box[3] if own_areas else image["target_areas"][j],
                        "iscrowd": 0 if own_areas else image["target_crowds"][j],
                    }
                )
            for box, score, label in zip(image["boxes"], image["scores"], image["labels"]):
                detections.append(
                    {"image_id": place, "bbox": xywh(box), "category_id": label, "score": score}
                )
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO()
            truth.dataset = {
                "images": [{"id": place} for place in range(len(images))],
                "categories": [{"id": label} for label in range(4)],
                "annotations": objects,
            }
            truth.createIndex()
            run = COCOeval(truth, truth.loadRes(detections), "bbox")
            run.evaluate()
            run.accumulate()
            run.summarize()
        precision = run.eval["precision"][:, :, :, 0, 2]
        recall = run.eval["recall"][:, :, 0, 2]
        return {
            "stats": run.stats.tolist(),
            "map per class": precision.mean((0, 1)).tolist(),
            "mar per class": recall.mean(0).tolist(),
        }

    return {"images": images, "boxes": evaluated(True), "areas and crowds": evaluated(False)}


def features(rows, columns, seed):
    """Correlated features: each column also contains part of the one before it."""
    x = uniform((rows, columns), seed).float() - 0.5
    return x + 0.5 * torch.roll(x, 1, 1)


def generated():
    def frechet(real, fake):
        real, fake = real.double().numpy(), fake.double().numpy()
        a, b = np.cov(real, rowvar=False), np.cov(fake, rowvar=False)
        difference = real.mean(0) - fake.mean(0)
        return float(difference @ difference + np.trace(a + b) - 2 * np.trace(sqrtm(a @ b).real))

    def score(logits, splits):
        p = logits.double().softmax(1).numpy()
        scores = []
        for k in range(splits):
            part = p[k * len(p) // splits : (k + 1) * len(p) // splits]
            kl = part * (np.log(part) - np.log(part.mean(0, keepdims=True)))
            scores.append(np.exp(kl.sum(1).mean()))
        return [float(np.mean(scores)), float(np.std(scores))]

    real, fake = features(30, 6, 60), features(24, 6, 61) * 1.5 + 0.25
    few, others = features(9, 20, 62), features(9, 20, 63)
    same = features(24, 6, 60)
    logits = features(24, 6, 64) * 4
    return {
        "fid": frechet(real, fake),
        "fid few": frechet(few, others),
        "kid": poly_mmd(same.double(), fake.double()).item(),
        "kid 2": poly_mmd(same.double(), fake.double(), degree=2, gamma=0.5, coef=0.25).item(),
        "inception": score(logits, 1),
        "inception 5": score(logits, 5),
    }


def seed_of(name):
    return sum((place + 1) * byte for place, byte in enumerate(name.encode()))


def weights(name, shape):
    """The weights of a parameter in f32, by name."""
    u = uniform(tuple(shape), seed_of(name))
    if name.startswith("lin") or name.split(".")[-1] in ("alpha", "beta"):
        return u.float()
    if ".ln_" in name and name.endswith(".weight"):
        return (u * 0.5 + 0.75).float()
    if "_scale." in name or name == "adapter.k":
        return (u * 0.5 + 0.5).float()
    if len(shape) == 1:
        return ((u - 0.5) * 0.1).float()
    return ((u * 2 - 1) * np.sqrt(6.0 / np.prod(shape[1:]))).float()


class Fire(nn.Module):
    def __init__(self, inputs, squeezed, outputs):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, outputs // 2, 1)
        self.expand3x3 = nn.Conv2d(squeezed, outputs // 2, 3, padding=1)

    def forward(self, x):
        x = self.squeeze(x).relu()
        return torch.cat([self.expand1x1(x).relu(), self.expand3x3(x).relu()], 1)


def classifier(name, pretrained=False):
    """The feature layers of torchvision's classifiers."""
    if name == "alexnet":
        layers = [
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2),
        ]  # fmt: skip
    elif name == "vgg16":
        layers, inputs = [], 3
        for outputs in (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"):
            if outputs == "M":
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
                inputs = outputs
    else:
        pool = lambda: nn.MaxPool2d(3, 2, ceil_mode=True)  # noqa: E731
        layers = [
            nn.Conv2d(3, 64, 3, 2), nn.ReLU(), pool(), Fire(64, 16, 128), Fire(128, 16, 128), pool(),
            Fire(128, 32, 256), Fire(256, 32, 256), pool(), Fire(256, 48, 384), Fire(384, 48, 384),
            Fire(384, 64, 512), Fire(512, 64, 512),
        ]  # fmt: skip
    model = nn.Sequential(*layers)
    for key, parameter in model.named_parameters():
        parameter.data = weights(f"features.{key}", parameter.shape)
    return model


def perceptual():
    lpips._get_tv_model_features = classifier
    pairs = image_pairs((2, 3, 64, 64), noise=0.5)[:2]

    def mean(net, scale):
        values = [net(scale(x.double()), scale(y.double())) for x, y in pairs]
        return torch.cat([value.flatten() for value in values]).mean().item()

    values = {}
    for net in ("alex", "vgg", "squeeze"):
        model = lpips._LPIPS(pretrained=False, net=net)
        for place, head in enumerate(model.lins):
            weight = head.model[-1].weight
            weight.data = weights(f"lin{place}.model.1.weight", weight.shape)
        values[f"lpips {net}"] = mean(model.double().eval(), lambda x: 2 * x - 1)
    dists._TORCHVISION_AVAILABLE = True
    dists.VGG16_Weights = type("Weights", (), {"DEFAULT": None})
    dists.vgg16 = lambda weights: type("Vgg", (), {"features": classifier("vgg16")})
    model = dists.DISTSNetwork(load_weights=False)
    for name in ("alpha", "beta"):
        parameter = getattr(model, name)
        parameter.data = weights(name, parameter.shape)
    values["dists"] = mean(model.double(), lambda x: x)
    return values


class ClipBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, width // 64, batch_first=True)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        y = self.mlp["c_fc"](self.ln_2(x))
        return x + self.mlp["c_proj"](y * torch.sigmoid(1.702 * y))


class ClipVision(nn.Module):
    """The vision transformer of CLIP: the tokens of patches after each block."""

    def __init__(self, width, layers, patch, positions):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(width))
        self.positional_embedding = nn.Parameter(torch.zeros(positions, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = nn.ModuleDict({"resblocks": nn.ModuleList(ClipBlock(width) for _ in range(layers))})

    def forward(self, x):
        x = self.conv1(x).flatten(2).mT
        x = torch.cat([self.class_embedding.expand(len(x), 1, -1), x], 1)
        positions, size = self.positional_embedding[None, None], x.shape[1:]
        if positions.shape[2:] != size:
            positions = nn.functional.interpolate(positions, size=size, mode="bicubic", align_corners=False)
        x = self.ln_pre(x + positions[0])
        features = []
        for block in self.transformer["resblocks"]:
            x = block(x)
            features.append(x[:, 1:])
        return features


class Afine(nn.Module):
    """A-FINE, from the equations of the paper, with an encoder of a given size."""

    def __init__(self, width=128, layers=2, patch=8, positions=10):
        super().__init__()
        self.patch = patch
        self.finetuned_clip = nn.ModuleDict({"visual": ClipVision(width, layers, patch, positions)})
        head = nn.Sequential(nn.Linear(6 + layers * 128, 768), nn.GELU(), nn.Linear(768, 1))
        self.natural = nn.ModuleDict({"proj_feat": nn.Linear(2 * width, 128), "proj_head": head})
        zeros = lambda *shape: nn.Parameter(torch.zeros(*shape))  # noqa: E731
        channels = 3 + layers * width
        self.fidelity = nn.ParameterDict({name: zeros(1, 1, channels) for name in ("alpha", "beta")})
        self.natural_scale = nn.ParameterDict({name: zeros(1) for name in ("yita3", "yita4")})
        self.fidelity_scale = nn.ParameterDict({name: zeros(1) for name in ("yita3", "yita4")})
        self.adapter = nn.ParameterDict({"k": zeros(1)})
        for name, parameter in self.named_parameters():
            parameter.data = weights(name, parameter.shape)

    def features(self, x):
        mean = torch.tensor([0.48145466, 0.4578275, 0.40821073], dtype=x.dtype).view(1, 3, 1, 1)
        std = torch.tensor([0.26862954, 0.26130258, 0.27577711], dtype=x.dtype).view(1, 3, 1, 1)
        x, size = (x - mean) / std, [-(-length // self.patch) * self.patch for length in x.shape[2:]]
        if list(x.shape[2:]) != size:
            x = nn.functional.interpolate(x, size=size, mode="bicubic", align_corners=False)
        tokens = self.finetuned_clip["visual"](x)
        return [(x * std + mean).flatten(2).mT] + [feature.relu() for feature in tokens]

    def naturalness(self, features):
        statistics = []
        for place, feature in enumerate(features):
            both = torch.cat([feature.mean(1), feature.var(1, unbiased=False)], 1)
            statistics.append(self.natural["proj_feat"](both) if place else both)
        n = self.natural["proj_head"](torch.cat(statistics, 1))[:, 0]
        return self.logistic(n, self.natural_scale["yita3"], self.natural_scale["yita4"])

    def distance(self, xs, ys):
        alpha, beta = (nn.functional.softplus(self.fidelity[name]) for name in ("alpha", "beta"))
        total = alpha.sum() + beta.sum() + 1e-10
        texture, structure = [], []
        for x, y in zip(xs, ys):
            mx, my = x.mean(1, keepdim=True), y.mean(1, keepdim=True)
            vx, vy = ((z - m).square().mean(1, keepdim=True) for z, m in ((x, mx), (y, my)))
            cov = (x * y).mean(1, keepdim=True) - mx * my
            texture.append((2 * mx * my + 1e-10) / (mx**2 + my**2 + 1e-10))
            structure.append((2 * cov + 1e-10) / (vx + vy + 1e-10))
        texture, structure = torch.cat(texture, 2), torch.cat(structure, 2)
        d = 1 - (alpha / total * texture).sum((1, 2)) - (beta / total * structure).sum((1, 2))
        centre, width = self.fidelity_scale["yita3"], self.fidelity_scale["yita4"]
        return self.logistic(d, centre.clamp(0.05, 0.95), width.clamp(0.01, 0.70))

    def logistic(self, x, centre, width):
        return 4 / (1 + torch.exp(-(x - centre) / (width.abs() + 1e-10))) - 2

    def forward(self, x, reference):
        """The score before and after the last logistic function."""
        x, reference = self.features(x), self.features(reference)
        of_x, of_reference = self.naturalness(x), self.naturalness(reference)
        k = nn.functional.softplus(self.adapter["k"])
        score = torch.exp(k * (of_reference - of_x)) * of_x + self.distance(x, reference)
        return score, 100 / (1 + torch.exp(-(score + 1.9710) / (2.3734 + 1e-10)))


@torch.no_grad()
def afine():
    model = Afine().double().eval()

    def mean(pairs):
        unscaled, scaled = zip(*[model(x.double(), y.double()) for x, y in pairs])
        return {"score": torch.cat(scaled).mean().item(), "unscaled": torch.cat(unscaled).mean().item()}

    pairs = image_pairs((2, 3, 24, 24), noise=0.5)[:2]
    return {
        "plain": mean(pairs),
        # Neither length is a multiple of a patch, and the positional embedding has fewer rows than there are tokens.
        "resized": mean(image_pairs((2, 3, 37, 30), noise=0.5)[:2]),
        "equal": mean([(y, y) for _, y in pairs]),
    }


def main():
    torch.set_num_threads(1)
    values = {
        "segmentation": segmentation(),
        "similarity": similarity(),
        "detection": detection(),
        "generated": generated(),
        "perceptual": perceptual(),
        "afine": afine(),
    }
    path = Path(__file__).with_name("vision.json")
    path.write_text(json.dumps(values, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
