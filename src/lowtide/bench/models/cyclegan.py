"""The generator of CycleGAN."""

from __future__ import annotations

from torch import Tensor, nn

from lowtide.bench.models.network import Recipe, images


def _normed(layer: nn.Module, channels: int) -> list[nn.Module]:
    return [layer, nn.InstanceNorm2d(channels), nn.ReLU(inplace=True)]


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        conv = [nn.Conv2d(channels, channels, 3, padding=1, padding_mode="reflect") for _ in range(2)]
        self.body = nn.Sequential(*_normed(conv[0], channels), conv[1], nn.InstanceNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Generator(nn.Sequential):
    """Zhu et al. 2017 (arXiv 1703.10593), appendix: a 7x7 convolution, two that halve the image, `blocks` residual
    blocks, two that double it, a 7x7 one and tanh. (N, 3, H, W) -> (N, 3, H, W), H and W multiples of 4."""

    def __init__(self, width: int = 64, blocks: int = 9) -> None:
        w = width
        super().__init__(
            *_normed(nn.Conv2d(3, w, 7, padding=3, padding_mode="reflect"), w),
            *_normed(nn.Conv2d(w, 2 * w, 3, stride=2, padding=1), 2 * w),
            *_normed(nn.Conv2d(2 * w, 4 * w, 3, stride=2, padding=1), 4 * w),
            *(_Residual(4 * w) for _ in range(blocks)),
            *_normed(nn.ConvTranspose2d(4 * w, 2 * w, 3, stride=2, padding=1, output_padding=1), 2 * w),
            *_normed(nn.ConvTranspose2d(2 * w, w, 3, stride=2, padding=1, output_padding=1), w),
            nn.Conv2d(w, 3, 7, padding=3, padding_mode="reflect"),
            nn.Tanh(),
        )


RECIPE = Recipe("cyclegan", Generator, images, 256, "generator of CycleGAN, 9 residual blocks, instance norm")
