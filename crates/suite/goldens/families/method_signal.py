"""Complex tensors, Fourier transforms, signals. A complex operand is two: real and imaginary parts."""

import math

import torch

from .case import Tolerance, normal, uniform
from .rows import Rows

rows = Rows()
OPERATIONS, CASES = rows.OPERATIONS, rows.CASES

FFT = Tolerance(2e-5, 2e-5)


def _pairs(function):
    """Real and imaginary parts in pairs to complex, and back."""

    def run(*inputs):
        result = function(*(torch.complex(re, im) for re, im in zip(inputs[::2], inputs[1::2])))
        return (result.real, result.imag) if result.is_complex() else result

    return run


def _split(function):
    def run(*inputs):
        result = function(*inputs)
        return result.real, result.imag

    return run


def _two(shape, count=2):
    return [normal(*shape) for _ in range(count)]


rows.add("complex_mul", _pairs(torch.mul), *_two((2, 3)), *_two((3,)))
rows.add("complex_div", _pairs(torch.div), *_two((2, 3)), *[uniform(0.5, 2.0, 3) for _ in range(2)])
rows.add("complex_matmul", _pairs(torch.matmul), *_two((2, 3)), *_two((3, 2)))
rows.add("complex_exp", _pairs(torch.exp), *_two((2, 3)))
rows.add("complex_abs", _pairs(torch.abs), *_two((2, 3)))
rows.add("complex_angle", _pairs(torch.angle), *_two((2, 3)))
rows.add("complex_from_polar", _split(torch.polar), uniform(0.5, 2.0, 2, 3), normal(2, 3))

rows.add("fft/padded", _pairs(lambda x: torch.fft.fft(x, 8, 0, "ortho")), *_two((2, 6)), tolerance=FFT)
rows.add("ifft", _pairs(lambda x: torch.fft.ifft(x, 5, 1)), *_two((2, 6)), tolerance=FFT)
rows.add("fftn", _pairs(lambda x: torch.fft.fftn(x, dim=(0, 2))), *_two((2, 3, 4)), tolerance=FFT)
rows.add("irfft", _pairs(torch.fft.irfft), *_two((2, 6)), tolerance=FFT)
rows.add("irfftn", _pairs(lambda x: torch.fft.irfftn(x, dim=(1, 2))), *_two((2, 3, 4)), tolerance=FFT)
rows.add("rfft", _split(torch.fft.rfft), normal(2, 6), tolerance=FFT)
rows.add("rfft", _split(torch.fft.rfft), normal(7), name="rfft_odd", tolerance=FFT)
rows.add("rfft/padded", _split(lambda x: torch.fft.rfft(x, 8, 0, "ortho")), normal(5, 2), tolerance=FFT)
rows.add("rfftn", _split(lambda x: torch.fft.rfftn(x, dim=(0, 1))), normal(3, 4), tolerance=FFT)
rows.add("ihfft", _split(torch.fft.ihfft), normal(2, 7), name="ihfft_odd", tolerance=FFT)
rows.add("hfft", _pairs(torch.fft.hfft), *_two((2, 6)), tolerance=FFT)
rows.add("hfft/odd", _pairs(lambda x: torch.fft.hfft(x, 7, norm="forward")), *_two((2, 6)), tolerance=FFT)
rows.add("ihfft", _split(torch.fft.ihfft), normal(2, 6), tolerance=FFT)
rows.add("irfft/odd", _pairs(lambda x: torch.fft.irfft(x, 7, norm="ortho")), *_two((2, 6)), tolerance=FFT)
rows.add(
    "ifftn",
    _pairs(lambda x: torch.fft.ifftn(x, (4, 3), (-2, -1), "forward")),
    *_two((2, 3, 4)),
    tolerance=FFT,
)
rows.add("fftfreq", lambda a: torch.fft.fftfreq(5, 0.5, dtype=a.dtype), normal(1), gradient=False)
rows.add("rfftfreq", lambda a: torch.fft.rfftfreq(6, 0.5, dtype=a.dtype), normal(1), gradient=False)
rows.add("fftshift", lambda a: torch.fft.fftshift(a, (0, 1)), normal(5, 4))
rows.add("ifftshift", lambda a: torch.fft.ifftshift(a, (0, 1)), normal(5, 4))


def _cosines(n, like):
    k, i = torch.arange(n, dtype=like.dtype)[:, None], torch.arange(n, dtype=like.dtype)[None]
    return torch.cos(math.pi * k * (2 * i + 1) / (2 * n))


def _dct_two(a):
    return 2 * a @ _cosines(a.shape[-1], a).T


def _dct_three(a):
    c = _cosines(a.shape[-1], a)
    c = torch.cat([c[:1], 2 * c[1:]])
    return a @ c


def _orthonormal(n, like):
    scale = torch.full((n, 1), math.sqrt(2 / n), dtype=like.dtype)
    scale[0] = math.sqrt(1 / n)
    return scale * _cosines(n, like)


rows.add("dct", _dct_two, normal(2, 5), tolerance=FFT)
rows.add("dct", _dct_two, normal(1, 8), name="dct_even", tolerance=FFT)
rows.add("dct/two orthogonal", lambda a: _orthonormal(4, a) @ a, normal(4, 2), tolerance=FFT)
rows.add("dct/three orthogonal", lambda a: a @ _orthonormal(4, a), normal(2, 4), tolerance=FFT)
rows.add("dct/three", _dct_three, normal(2, 5), tolerance=FFT)


def _window(key, make):
    rows.add(f"window/{key}", lambda a: make(a.dtype), normal(1), gradient=False)


_window("hann", lambda dtype: torch.hann_window(6, dtype=dtype))
_window("hann symmetric", lambda dtype: torch.hann_window(5, False, dtype=dtype))
_window("one", lambda dtype: torch.hann_window(1, dtype=dtype))
_window("hamming", lambda dtype: torch.hamming_window(6, dtype=dtype))
_window("blackman", lambda dtype: torch.blackman_window(6, False, dtype=dtype))
_window("bartlett", lambda dtype: torch.bartlett_window(6, dtype=dtype))
_window("kaiser", lambda dtype: torch.kaiser_window(6, dtype=dtype))
_window("cosine", lambda dtype: torch.signal.windows.cosine(6, sym=False, dtype=dtype))
_window("gaussian", lambda dtype: torch.signal.windows.gaussian(6, std=1.5, dtype=dtype))
_window(
    "general cosine",
    lambda dtype: torch.signal.windows.general_cosine(6, a=[0.4, 0.3, 0.2, 0.1], dtype=dtype),
)
_window(
    "general hamming",
    lambda dtype: torch.signal.windows.general_hamming(6, alpha=0.6, sym=False, dtype=dtype),
)


def _stft(points, **options):
    def run(x, window=None):
        y = torch.stft(x, points, 2, window=window, return_complex=True, **options)
        return y.real, y.imag

    return run


rows.add("stft", _stft(4), normal(2, 9), uniform(0.5, 1.5, 4), tolerance=FFT)
rows.add(
    "stft/whole",
    lambda x: (
        y := torch.stft(
            x, 4, 3, center=False, normalized=True, onesided=False, return_complex=True
        ),
        (y.real, y.imag),
    )[1],
    normal(2, 9),
    tolerance=FFT,
)
rows.add(
    "stft/circular",
    _stft(5, win_length=3, pad_mode="circular"),
    normal(1, 9),
    uniform(0.5, 1.5, 3),
    tolerance=FFT,
)
rows.add("stft/edge", _stft(4, pad_mode="replicate"), normal(1, 6), tolerance=FFT)
rows.add("stft/constant", _stft(4, pad_mode="constant"), normal(1, 6), tolerance=FFT)
rows.add(
    "istft",
    lambda re, im, window: torch.istft(torch.complex(re, im), 4, 2, window=window),
    *_two((2, 3, 4)),
    uniform(0.5, 1.5, 4),
    tolerance=FFT,
)
rows.add(
    "istft/whole",
    lambda re, im: torch.istft(
        torch.complex(re, im), 4, 2, center=False, normalized=True, onesided=False, length=8,
        return_complex=True,
    ).real,
    *_two((4, 4)),
    tolerance=FFT,
)


def _convolve(a, b):
    return torch.nn.functional.conv1d(
        a[None, None], b.flip(0)[None, None], padding=b.shape[0] - 1
    ).reshape(-1)


rows.add("convolve", _convolve, normal(5), normal(3))
rows.add("fftconvolve", _convolve, normal(5), normal(3), tolerance=FFT)
