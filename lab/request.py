"""A request is two integers: `num_computed` and `num_tokens`. Every step moves the first towards the second.

"Prefill" and "decode" are not states; they are what one sees when `remaining` is large or one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from lab.errors import BadRequest
from lab.numbers import real, whole

#: Where a request is. It says who holds it (queue, batch, nobody), not what kind of work comes next.
STATUSES = ("waiting", "running", "preempted", "finished")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How output tokens are chosen and when they end.

    temperature 0 (the default) takes the most likely token. The noise of any other temperature is a function of
    (seed, request id, position) alone, so it cannot depend on who else is in the batch. `max_tokens` is exact
    unless a stop token comes first; `ignore_eos` makes every request run to `max_tokens`.
    """

    max_tokens: int = 64
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0 means: no limit
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1  # samples of the same prompt; each is a request of its own, see `Request.samples`

    def __post_init__(self) -> None:
        whole(self.max_tokens, "max_tokens is", 1, BadRequest)
        real(self.temperature, "temperature is", 0, BadRequest)
        if not 0 < real(self.top_p, "top_p is", -inf, BadRequest) <= 1:
            raise BadRequest(f"top_p is {self.top_p}; it must be in (0, 1]")
        whole(self.top_k, "top_k (0 = no limit) is", 0, BadRequest)
        whole(self.seed, "seed is", 0, BadRequest)
        whole(self.n, "n (samples) is", 1, BadRequest)


@dataclass(slots=True, eq=False)
class Request:
    """One prompt and the tokens generated for it so far.

    `prompt` is token ids, or None for a trace without text; then `num_prompt` is its length and `block_keys`
    (one per prefix block) say what it shares. The engine owns every field below the line.
    """

    id: int
    prompt: Sequence[int] | None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    arrival_time: float = 0.0  # seconds on the driver's clock
    deadline: float | None = None  # absolute time by which the first token is wanted
    priority: int = 0  # larger goes first
    num_prompt: int = 0
    block_keys: tuple[int, ...] = ()
    key_size: int = 512  # prompt tokens that one block key stands for
    # ------------------------------------------------------------- owned by the engine
    num_computed: int = 0  # tokens whose keys and values are resident
    num_output: int = 0
    num_delivered: int = 0  # output tokens in the user's hands; the rest waits for the batch to end
    output: list[int] = field(default_factory=list)  # stays empty when tokens are only priced
    margins: list[float] = field(default_factory=list)  # top-2 logit margin of each output token
    block_table: list[int] = field(default_factory=list)
    host_table: list[int] = field(default_factory=list)  # blocks in host memory while swapped out
    contents: list[tuple] = field(default_factory=list)  # see memory.content
    status: str = "waiting"
    in_flight: bool = False
    high_water: int = 0  # most tokens ever computed; below it, computing is recomputing
    num_cached: int = 0  # prompt tokens taken from a prefix cache, over all admissions
    num_preemptions: int = 0
    first_token_time: float | None = None
    last_token_time: float | None = None
    finish_reason: str | None = None  # "stop", "length", "abort" or "refused"
    error: Exception | None = None

    def __post_init__(self) -> None:
        if self.prompt is not None:
            self.num_prompt = len(self.prompt)
        whole(self.num_prompt, f"request {self.id} has a prompt length (in tokens) of", 1, BadRequest)
        real(self.arrival_time, f"request {self.id} has an arrival time of", 0, BadRequest)
        if self.deadline is not None:
            real(self.deadline, f"request {self.id} has a deadline of", 0, BadRequest)

    @property
    def num_tokens(self) -> int:
        """Prompt plus generated tokens: the target of `num_computed`."""
        return self.num_prompt + self.num_output

    @property
    def remaining(self) -> int:
        """Tokens still to compute before the next one can be sampled; 1 is what is called a decode."""
        return self.num_prompt + self.num_output - self.num_computed

    @property
    def max_total(self) -> int:
        """Most tokens whose keys and values this request can ever need (the last token's are never computed)."""
        return self.num_prompt + self.sampling.max_tokens - 1

    @property
    def order(self) -> tuple[float, int]:
        """First come, first served: the tie-break of every order."""
        return (self.arrival_time, self.id)

    def samples(self) -> list[Request]:
        """The further requests of a prompt sampled n times, with ids of their own: id + sample·2³².

        An id depends on the parent's alone, so the noise of a sample does not depend on when it was forked.
        """
        return [
            replace(
                self, id=self.id + (sample << 32), output=[], margins=[], block_table=[], host_table=[], contents=[]
            )
            for sample in range(1, self.sampling.n)
        ]

    def tokens(self, start: int, stop: int) -> list[int]:
        """Token ids at positions [start, stop) of prompt + output."""
        if self.prompt is None:
            raise BadRequest(f"request {self.id} comes from a trace without text: it has no token ids")
        n = self.num_prompt
        if stop <= n:
            return list(self.prompt[start:stop])
        if start >= n:
            return self.output[start - n : stop - n]
        return [*self.prompt[start:n], *self.output[: stop - n]]
