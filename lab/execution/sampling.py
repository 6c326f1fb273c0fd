"""From logits to the next token. Stateless: the noise of a token is a function of (seed, request, position) alone.

So neither the order of a batch, nor who else is in it, nor a preemption can change what is sampled. The numbers
come from Philox, a generator that is a pure function of key and counter (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3"); adding Gumbel noise and taking the maximum draws from the softmax.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lab.execution.device import send
from lab.execution.elementwise import best_two
from lab.plan import Row
from lab.request import SamplingParams


@dataclass(slots=True)
class Sampled:
    """Tokens and, for each, by how much the best score beat the second best."""

    tokens: list[int]
    margins: list[float]


@torch.inference_mode()
def sample(logits: Tensor, rows: list[Row]) -> Sampled:
    """The next token of each row; logits [rows, vocab] are in the order of `rows` and may be overwritten.

    Computed in float32 on the logits' device; the host waits once, for the result.

    At temperature 0 the score is the logit; otherwise it is logit / temperature + noise among the tokens that
    top-k and top-p leave. A margin below rounding error means that the choice was a tie; a single candidate has an
    infinite one.
    """
    logits = logits.to(torch.float32)
    for index, row in enumerate(rows):
        if row.request.sampling.temperature > 0:
            position = row.start + row.num_tokens
            logits[index] = noisy_scores(logits[index], row.request.sampling, row.request.id, position)
    tokens, best = best_two(logits)
    ids, margins = torch.stack((tokens.to(torch.float64), (best[:, 0] - best[:, 1]).to(torch.float64))).tolist()
    return Sampled([int(token) for token in ids], margins)


def noisy_scores(logits: Tensor, params: SamplingParams, request_id: int, position: int) -> Tensor:
    """Scores [vocab] whose maximum is one draw from softmax(logits / temperature) after top-k and top-p."""
    # relative to the largest, so that a tiny temperature sends the others to -inf and not the largest to +inf
    relative = (logits - logits.max()) / params.temperature
    scores = keep_likely(relative.nan_to_num(nan=0.0), params.top_k, params.top_p)
    return scores + send(gumbel_noise(len(logits), params.seed, request_id, position), scores.device)


def keep_likely(scores: Tensor, top_k: int, top_p: float) -> Tensor:
    """Scores [vocab] with -inf outside the `top_k` largest, then outside the smallest set of mass `top_p`.

    The token that crosses `top_p` stays, so at least one always does. 0 and 1.0 switch the two off.
    """
    if 0 < top_k < len(scores):
        best, ids = scores.topk(top_k)
        scores = torch.full_like(scores, float("-inf")).index_copy_(0, ids, best)
    if top_p < 1:
        probabilities = scores.softmax(dim=-1)
        ids = candidates(probabilities, top_p)
        ordered, order = probabilities[ids].sort(descending=True, stable=True)
        ids = ids[order]
        dropped = ordered.cumsum(dim=-1) - ordered >= top_p
        kept = scores[ids].masked_fill(dropped, float("-inf"))
        scores = torch.full_like(scores, float("-inf")).index_copy_(0, ids, kept)
    return scores


def candidates(probabilities: Tensor, top_p: float) -> Tensor:
    """Ids worth sorting. On the CPU sorting is slow, so those go whose sum is below 1 - top_p whatever their order;
    a GPU sorts quickly, and would have to wait for their number.
    """
    if probabilities.device.type != "cpu":
        return torch.arange(len(probabilities), device=probabilities.device)
    return (probabilities >= (1 - top_p) / len(probabilities)).nonzero()[:, 0]


def gumbel_noise(size: int, seed: int, request_id: int, position: int) -> Tensor:
    """Gumbel noise [size], a pure function of its arguments."""
    key = np.array([seed % 2**64, request_id % 2**64], np.uint64)
    generator = np.random.Philox(key=key, counter=np.array([0, 0, position, 0], np.uint64))
    uniform = ((generator.random_raw(size) >> np.uint64(11)) + 0.5) * 2.0**-53  # strictly between 0 and 1
    return torch.from_numpy(-np.log(-np.log(uniform))).to(torch.float32)
