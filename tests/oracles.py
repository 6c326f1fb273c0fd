"""Oracles: a runner without a model whose tokens depend on every visible key-value slot, and `solo`.

HashRunner keeps what was written in (block, slot). A sampled token is a hash of all slots its request can see
through its block table, so one wrong, stale or overwritten slot changes the tokens, as it would in a real model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from lab.engine import Engine
from lab.plan import Row, StepPlan, StepResult
from lab.request import Request, SamplingParams

VOCAB = 1000
EOS = 7


@dataclass
class HashRunner:
    """Implements Runner; raises AssertionError when a row reads a slot that its request did not fill."""

    block_size: int
    price: float = 0.01
    slots: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    computed: int = 0

    def run(self, plan: StepPlan) -> StepResult:
        for copy in plan.copies:
            self._copy(copy.kind, copy.source, copy.target)
        for row in plan.rows:
            self._write(row)
        tokens = [self._sample(row) if row.samples else None for row in plan.rows]
        seconds = self.price * (1 + 0.01 * (plan.num_tokens + plan.num_padding))
        return StepResult(tokens, [None if token is None else 1.0 for token in tokens], seconds, modelled=True)

    def _copy(self, kind: str, source: int, target: int) -> None:
        away = {"copy": ("", ""), "out": ("", "host"), "in": ("host", "")}[kind]
        for slot in range(self.block_size):
            key = (away[0] + str(source) if away[0] else source, slot)
            if key in self.slots:
                self.slots[(away[1] + str(target) if away[1] else target, slot)] = self.slots[key]

    def _write(self, row: Row) -> None:
        request = row.request
        for position, token in enumerate(request.tokens(row.start, row.start + row.num_tokens), row.start):
            block = request.block_table[position // self.block_size]
            self.slots[block, position % self.block_size] = (position, token)
        self.computed += row.num_tokens

    def _sample(self, row: Row) -> int:
        request, end = row.request, row.start + row.num_tokens
        seen = []
        for position in range(end):
            block = request.block_table[position // self.block_size]
            entry = self.slots.get((block, position % self.block_size))
            assert entry is not None and entry[0] == position, f"request {request.id}: slot of {position} has {entry}"
            seen.append(entry[1])
        return hash_token(seen)


def hash_token(tokens: list[int]) -> int:
    """The token after `tokens`."""
    return int.from_bytes(hashlib.blake2b(repr(tokens).encode(), digest_size=4).digest()) % VOCAB


class HashModel:
    """A model for `lab.run` and `build_engine` that makes HashRunners."""

    name = "hash"
    price = 0.01  # priced: runs on the virtual clock by default
    max_context = 4096

    def __init__(self, eos: frozenset[int] = frozenset({EOS})):
        self.eos_token_ids = eos

    def runner(self, num_blocks: int, block_size: int, **options) -> HashRunner:
        return HashRunner(block_size, self.price)


def solo(prompt: list[int], sampling: SamplingParams, eos: frozenset[int] = frozenset({EOS})) -> list[int]:
    """The tokens HashRunner gives one request alone, computed without engine, memory or runner."""
    tokens = list(prompt)
    while True:
        tokens.append(hash_token(tokens))
        stop = tokens[-1] in sampling.stop_token_ids or (tokens[-1] in eos and not sampling.ignore_eos)
        if stop or len(tokens) - len(prompt) == sampling.max_tokens:
            return tokens[len(prompt) :]


def assert_books_balance(engine: Engine) -> None:
    """After a run: nothing held, and computed + cached = Σ(computed at the end) + dropped."""
    counts = engine.memory.counts()
    assert counts.used == 0, counts
    assert sum(counts) == engine.memory.num_blocks
    engine.check()
    computed = sum(step.computed for step in engine.trace)
    cached = sum(event.value for event in engine.trace.events() if event.kind == "admitted")
    dropped = sum(event.value for event in engine.trace.events() if event.kind == "preempted")
    assert computed + cached == sum(request.num_computed for request in engine.requests.values()) + dropped


def make_requests(specs: list[tuple[int, int]], arrivals: list[float] | None = None, **kwargs) -> list[Request]:
    """Requests with (prompt length, max_tokens); prompts are distinct and fixed."""
    return [
        Request(
            i,
            [(i * 131 + j * 7) % VOCAB for j in range(length)],
            SamplingParams(max_tokens=limit, **kwargs),
            arrivals[i] if arrivals else 0.0,
        )
        for i, (length, limit) in enumerate(specs)
    ]
