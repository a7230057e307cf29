"""If these fail, people's first network for images learns nothing, or from harmed images."""

import gzip

import numpy as np
import pytest
import torch
import train_images as images
from torch import nn
from train_images import FOLDER, Images, augmented, scaled

from trainables import Training, Worker


@pytest.mark.parametrize(("kind", "least"), [("cnn", 0.85), ("resnet", 0.85), ("vit", 0.3)])
def test_digits_are_learned_by_each_network(kind, least):
    worker = Worker.alone(until=3, training=Training(schedule="cosine", warmup=0.1))
    Images(data="digits", kind=kind, width=16, lr=1e-2, batch=32).train(worker)
    assert worker.reports[-1].metrics["val/accuracy"] > least


def test_moved_images_are_the_old_ones_a_few_pixels_away_or_mirrored():
    torch.manual_seed(0)
    frame = torch.zeros(64, 28, 28, dtype=torch.uint8)
    inner = torch.randint(0, 255, (64, 24, 24), dtype=torch.uint8)
    frame[:, 2:-2, 2:-2] = inner
    before = scaled(frame, nn.Linear(1, 1))
    after = augmented(before)
    assert after.shape == before.shape
    # Nothing is lost over an edge that is two pixels wide.
    torch.testing.assert_close(after.sort(dim=-1).values.sum(), before.sum(), rtol=1e-4, atol=0.1)
    pixels = before.flatten(1).sort(dim=1).values
    torch.testing.assert_close(after.flatten(1).sort(dim=1).values, pixels)
    assert not torch.equal(after, before)


@pytest.fixture
def clothes(tmp_path, monkeypatch):
    """Create a folder like Fashion-MNIST's, with a few images."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    rng = np.random.default_rng(0)
    for name, count in (("train", 12), ("t10k", 6)):
        pixels, labels = rng.integers(0, 256, count * 784), np.arange(count) % 10
        for kind, head, values in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
            with gzip.open(tmp_path / f"{name}-{kind}-ubyte.gz", "wb") as file:
                file.write(bytes(head) + values.astype(np.uint8).tobytes())
    return tmp_path


def test_the_files_of_fashion_mnist_are_read(clothes):
    data = images.fashion(images.folder())
    pixels, labels = data.train.batch(torch.arange(12))
    assert (pixels.shape, pixels.dtype) == ((12, 28, 28), torch.uint8)
    assert labels.tolist() == [*range(10), 0, 1]
    assert len(data.validation) == 6
    worker = Worker.alone(training=Training(precision="64-true"))
    Images(width=4, batch=6, augment=True).train(worker)
    assert worker.reports[-1].metrics["val/loss"] > 0


def test_who_does_not_have_them_is_told_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"not in {tmp_path}: `apt-get install dataset-"):
        images.folder()
