"""`torch.ops.torchaudio`: recursive filters, alignment and the transducer's loss.

The loss and its gradient are those of Graves, "Sequence transduction with recurrent neural networks" (2012); alignment is the Viterbi path
through CTC's states (Graves et al., 2006).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..ops.creation import from_numpy
from . import Extension

audio, about = Extension("torchaudio"), Extension("_torchaudio")


@about.operator("is_align_available() -> bool")
def is_align_available() -> bool:
    """Yes."""
    return True


@about.operator("cuda_version() -> int?")
def cuda_version() -> None:
    """None: nothing was compiled for a version of CUDA."""


# -- filters -----------------------------------------------------------------------------------------------
@audio.operator("_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> Tensor(a!)")
def lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    """A recursive filter: each output is the input (batch, channel, time) less the outputs before it times `a_coeff_flipped`
    (channel, order), the oldest first. The padded output begins with order - 1 earlier ones."""
    wave, taps = input_signal_windows.cpu().numpy(), a_coeff_flipped.cpu().numpy()[:, :-1]
    made = padded_output_waveform.cpu().numpy().copy()
    order = taps.shape[1]
    for i in range(wave.shape[2]):
        made[:, :, i + order] = wave[:, :, i] - (made[:, :, i:i + order] * taps).sum(2)
    return padded_output_waveform.copy_(from_numpy(made))


@audio.operator("_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, Tensor(c!) "
                "output_waveform) -> (Tensor(a!), Tensor(b!), Tensor(c!))")
def overdrive_core_loop(waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor) -> tuple:
    """Half of the wave and three quarters of `temp` through a DC blocker (J. O. Smith, "Introduction to Digital Filters", 2007):
    (channel, time) all. The last elements in and out are where a next piece goes on."""
    source, kept = temp.cpu().numpy(), last_out.cpu().numpy()
    blocked = np.diff(source, axis=1, prepend=last_in.cpu().numpy()[:, None])
    for now in blocked.T:       # the pole, at 0.995
        now += source.dtype.type(0.995) * kept
        kept = now
    output_waveform.copy_(waveform * 0.5 + from_numpy(blocked).to(waveform.device) * 0.75)
    if blocked.shape[1]:
        last_in.copy_(temp[:, -1])
        last_out.copy_(from_numpy(kept.copy()).to(last_out.device))
    return last_in, last_out, output_waveform


# -- alignment ---------------------------------------------------------------------------------------------
def _aligned(scores: np.ndarray, target: np.ndarray, blank: int) -> np.ndarray:
    """The label of each frame on the likeliest path through blank, target 0, blank, target 1, ..., blank."""
    labels = np.full(2 * len(target) + 1, blank)
    labels[1::2] = target
    skips = np.zeros(len(labels), bool)     # from a label to the next one, unless they are equal
    skips[3::2] = target[1:] != target[:-1]
    best = np.full(len(labels), -np.inf)
    best[:2] = scores[0, labels[:2]]
    came = np.zeros((len(scores), len(labels)), np.int64)
    for t in range(1, len(scores)):
        ways = np.stack([best, np.concatenate([[-np.inf], best[:-1]]),
                         np.where(skips, np.concatenate([[-np.inf] * 2, best[:-2]])[:len(labels)], -np.inf)])
        came[t] = ways.argmax(0)
        best = ways.max(0) + scores[t, labels]
    state = len(labels) - 1 if len(labels) == 1 or best[-1] > best[-2] else len(labels) - 2
    states = []
    for t in range(len(scores) - 1, -1, -1):
        states.append(state)
        state -= came[t, state]
    return labels[states[::-1]]


@audio.operator("forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) -> "
                "(Tensor, Tensor)",
                lambda log_probs, targets, *rest: (targets.new_empty(log_probs.shape[:2]), log_probs.new_empty(log_probs.shape)))
def forced_align(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int) -> tuple[Tensor, Tensor]:
    """The likeliest label of each frame (1, frames) that spells `targets` (1, n); the log probabilities again."""
    if log_probs.ndim != 3 or log_probs.shape[0] != 1 or targets.ndim != 2 or targets.shape[0] != 1:
        raise RuntimeError("forced_align: expected log_probs [1, frames, labels] and targets [1, n] (one sequence), got "
                           f"{list(log_probs.shape)} and {list(targets.shape)}")
    frames, count = int(input_lengths[0]), int(target_lengths[0])
    scores, target = log_probs[0].detach().cpu().double().numpy()[:frames], targets[0].cpu().numpy()[:count]
    if blank in target:
        raise ValueError(f"targets Tensor shouldn't contain blank index. Found {targets}.")
    repeats = int((target[1:] == target[:-1]).sum())
    if frames < count + repeats:
        raise RuntimeError("targets length is too long for CTC. Found log_probs length: "
                           f"{frames}, targets length: {count}, and number of repeats: {repeats}")
    path = _aligned(scores, target, blank)
    return from_numpy(path[None]).to(targets.device, targets.dtype), log_probs.detach().clone()


# -- the transducer's loss ---------------------------------------------------------------------------------
def _forward_sums(stay: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Log probabilities of coming to each frame and number of labels: `stay` (t, u) goes a frame on, `step` (t, u - 1) a label."""
    sums = np.full(stay.shape, -np.inf)
    sums[0, 0] = 0
    frames, labels = stay.shape
    for d in range(1, frames + labels - 1):     # a diagonal needs the one before it alone
        t = np.arange(max(0, d - labels + 1), min(frames, d + 1))
        u = d - t
        by_frame = np.where(t > 0, sums[t - 1, u] + stay[t - 1, u], -np.inf)
        by_label = np.where(u > 0, sums[t, u - 1] + step[t, np.maximum(u - 1, 0)], -np.inf) if labels > 1 else by_frame * 0 - np.inf
        sums[t, u] = np.logaddexp(by_frame, by_label)
    return sums


def _transduced(scores: np.ndarray, target: np.ndarray, blank: int) -> tuple[float, np.ndarray]:
    """The loss of log probabilities (frames, labels + 1, classes) and its gradient by them."""
    frames, places, _ = scores.shape
    t, u = np.arange(frames)[:, None], np.arange(places - 1)
    stay, step = scores[:, :, blank], scores[t, u, target]
    before = _forward_sums(stay, step)
    turned = np.full_like(stay, -np.inf)     # the same from the end: what is staying there ends here
    turned[:-1] = stay[:-1][::-1]
    after = _forward_sums(turned[:, ::-1], step[::-1, ::-1])[::-1, ::-1] + stay[-1, -1]
    total = before[-1, -1] + stay[-1, -1]
    gradient = np.zeros_like(scores)
    gradient[:-1, :, blank] = -np.exp(before[:-1] + stay[:-1] + after[1:] - total)
    gradient[-1, -1, blank] = -1
    gradient[t, u, target] -= np.exp(before[:, :-1] + step + after[:, 1:] - total)
    return -total, gradient


@audio.operator("rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp, "
                "bool fused_log_softmax) -> (Tensor, Tensor)",
                lambda logits, *rest: (logits.new_empty(logits.shape[0]), logits.new_empty(logits.shape)))
def rnnt_loss_forward(logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor, blank: int, clamp: float,
                      fused_log_softmax: bool) -> tuple[Tensor, Tensor]:
    """The loss of each sequence of `logits` (batch, frames, labels + 1, classes), and the gradient of their sum by the logits, cut at
    `clamp` where it is positive."""
    scores = (logits.detach().double().log_softmax(-1) if fused_log_softmax else logits.detach().double()).cpu().numpy()
    blank = blank % logits.shape[-1]
    costs, gradient = np.zeros(len(scores)), np.zeros_like(scores)
    for k, (frames, count) in enumerate(zip(logit_lengths.tolist(), target_lengths.tolist())):
        mine = scores[k, :frames, :count + 1]
        costs[k], g = _transduced(mine, targets[k, :count].cpu().numpy(), blank)
        gradient[k, :frames, :count + 1] = g - np.exp(mine) * g.sum(-1, keepdims=True) if fused_log_softmax else g
    if clamp > 0:
        gradient = gradient.clip(-clamp, clamp)
    return from_numpy(costs).to(logits.device, logits.dtype), from_numpy(gradient).to(logits.device, logits.dtype)


def _keep_gradient(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.save_for_backward(output[1])


audio.gradient("rnnt_loss_forward", lambda ctx, g, _: (ctx.saved_tensors[0] * g.reshape(-1, 1, 1, 1), *[None] * 6), _keep_gradient)
