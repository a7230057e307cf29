"""A small diffusion model draws digits; how like real ones they are is measured on held-out ones.

Sources: Ho, Jain & Abbeel, Denoising Diffusion Probabilistic Models (2020), algorithms 1 and 2; the
schedule by a cosine: Nichol & Dhariwal, Improved DDPM (2021), equation 17. The distance is that of
Frechet between Gaussians, as in FID (Heusel et al., 2017), here in 20 principal components.

Axes: N pictures, B of a batch, P pixels, D components, K steps of noise.
"""

import math

import numpy as np
import torch
from scipy.linalg import sqrtm
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from trainables.worker import Params, Worker

BATCH, UPDATES, DRAWN = 128, 200, 500  # updates of a step; pictures drawn for the metric


class Denoiser(nn.Module):
    """A residual perceptron that tells the noise in a picture (B, P) from its level in [0, 1]."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.entry = nn.Linear(64 + 16, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU())
            for _ in range(blocks)
        )
        self.exit = nn.Linear(width, 64)

    def forward(self, x_BP: Tensor, level_B: Tensor) -> Tensor:
        """Return the noise (B, P)."""
        angle_BF = level_B[:, None] * math.pi * 2.0 ** torch.arange(-1, 7)
        hidden = self.entry(torch.cat([x_BP, angle_BF.sin(), angle_BF.cos()], 1))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        noise: Tensor = self.exit(hidden)
        return noise


def train(params: Params, worker: Worker) -> None:
    """Report val/distance, of drawn pictures to held-out ones, and val/loss of the noise."""
    torch.set_num_threads(1)
    torch.manual_seed(worker.seed)
    x_NP = torch.tensor(load_digits().data / 8 - 1).float()
    x_NP = x_NP[torch.randperm(len(x_NP), generator=torch.Generator().manual_seed(0))]
    held_NP, x_NP = x_NP[:DRAWN], x_NP[DRAWN:]
    kept_K = kept_share(params["noise"], params["steps"])
    model = Denoiser(params["width"], params["blocks"])
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(params["ema"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=params["lr"])
    for step in worker.steps():
        for _ in range(UPDATES):
            optimizer.zero_grad()
            denoising_loss(model, x_NP[torch.randint(len(x_NP), (BATCH,))], kept_K).backward()
            optimizer.step()
            average.update_parameters(model)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            loss = float(denoising_loss(average, held_NP, kept_K))
            distance = frechet(draw(average, kept_K).numpy(), held_NP.numpy(), x_NP.numpy())
        worker.report(step, {"val/distance": distance, "val/loss": loss})


def kept_share(noise: str, steps: int) -> Tensor:
    """Return the share of a picture's variance that is left after each step of noise (K,)."""
    if noise == "linear":  # the paper's for 1,000 steps, as much noise in fewer
        return (1 - torch.linspace(1e-4, 0.02, steps) * 1000 / steps).cumprod(0)
    angle_K = (torch.arange(1, steps + 1) / steps + 0.008) / 1.008 * math.pi / 2
    return angle_K.cos().square().clamp(min=1e-4)


def denoising_loss(model: nn.Module, x_BP: Tensor, kept_K: Tensor) -> Tensor:
    step_B = torch.randint(len(kept_K), (len(x_BP),))
    kept_B1, noise_BP = kept_K[step_B, None], torch.randn_like(x_BP)
    noisy_BP = kept_B1.sqrt() * x_BP + (1 - kept_B1).sqrt() * noise_BP
    return mse_loss(model(noisy_BP, step_B / len(kept_K)), noise_BP)


def draw(model: nn.Module, kept_K: Tensor) -> Tensor:
    """Return pictures (N, P), from noise by one step after the other."""
    x_NP = torch.randn(DRAWN, 64)
    before_K = torch.cat([torch.ones(1), kept_K[:-1]])
    for step in reversed(range(len(kept_K))):
        kept, before = kept_K[step], before_K[step]
        noise_NP = model(x_NP, torch.full((DRAWN,), step / len(kept_K)))
        guess_NP = ((x_NP - (1 - kept).sqrt() * noise_NP) / kept.sqrt()).clamp(-1, 1)
        added = 1 - kept / before
        mean_NP = before.sqrt() * added * guess_NP + (kept / before).sqrt() * (1 - before) * x_NP
        variance = added * (1 - before) / (1 - kept)
        x_NP = mean_NP / (1 - kept) + variance.sqrt() * torch.randn(x_NP.shape)
    return x_NP


def frechet(drawn_NP: np.ndarray, held_NP: np.ndarray, x_NP: np.ndarray) -> float:
    """Return the squared distance of two Gaussians, in components of the training pictures."""
    components = PCA(20, svd_solver="full").fit(x_NP)
    first_ND, second_ND = components.transform(drawn_NP), components.transform(held_NP)
    shift_D = first_ND.mean(0) - second_ND.mean(0)
    first_DD, second_DD = np.cov(first_ND.T), np.cov(second_ND.T)
    spread_DD = first_DD + second_DD - 2 * sqrtm(first_DD @ second_DD).real
    return float(shift_D @ shift_D + np.trace(spread_DD))
