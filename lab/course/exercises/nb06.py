"""Checks of notebook 06: whole blocks, chained keys, the order of a prompt's parts, and two caches that do not work.

Written together with notebooks/instructor/source/06_prefix_caching.py, which calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

from lab.course.broken import run_planted
from lab.course.broken_memory import BookTree, found_and_not_used
from lab.course.checks import Probe, exercise
from lab.course.prompt_parts import PARTS, computed_with
from lab.course.tiny_tree import TinyTree
from lab.memory.hash_cache import ROOT, chain
from lab.simulation.priced import Priced
from lab.trace import RunTrace
from lab.workload import fixed_workload


def cached_tokens(shared: int, prompt: int, block_size: int) -> int:
    """A solution of 06.1."""
    return min(shared, prompt - 1) // block_size * block_size


def found_by_engine(shared: int, prompt: int, block_size: int) -> int:
    """Cached tokens of a prompt whose first `shared` tokens have been computed for another request."""
    from lab.running import run

    first = tuple(range(shared)) + (7_000,)
    second = tuple(range(shared)) + tuple(range(9_000, 9_000 + prompt - shared))
    work = fixed_workload([first, second], [1, 1], [0.0, 9.0])
    return run(work, Priced(), prefix_cache="hash", block_size=block_size, blocks=256).cached_tokens


@exercise(
    "06.1",
    "How much is found?",
    hints=(
        "Only full blocks are shared: round down to a multiple of block_size.",
        "At least one token must be computed, or there is nothing to sample from: at most prompt - 1 may be found.",
        "min(shared, prompt - 1) // block_size * block_size",
    ),
    solution=lambda: cached_tokens,
    wrong={
        "token by token": lambda: lambda shared, prompt, size: min(shared, prompt - 1),
        "the whole prompt may be found": lambda: lambda shared, prompt, size: shared // size * size,
        "rounded up": lambda: lambda shared, prompt, size: -(-min(shared, prompt - 1) // size) * size,
        "blocks instead of tokens": lambda: lambda shared, prompt, size: min(shared, prompt - 1) // size,
        "a whole block is kept back": lambda: lambda shared, prompt, size: max(0, (shared - 1) // size) * size,
    },
)
def whole_blocks(answer: Any, probe: Probe) -> None:
    """answer(shared, prompt, block_size) -> tokens."""
    probe.step("it is a function")
    probe.function(answer, "cached_tokens")
    probe.step("nothing in common, nothing found")
    probe.equal(answer(0, 40, 16), 0, "cached_tokens(0, 40, 16)")
    probe.step("only full blocks")
    for shared, want in ((15, 0), (16, 16), (17, 16), (31, 16), (32, 32), (47, 32)):
        probe.equal(answer(shared, 100, 16), want, f"cached_tokens({shared}, 100, 16)")
    probe.step("the whole prompt is there: one token is computed all the same")
    for prompt, want in ((16, 0), (17, 16), (32, 16), (33, 32), (40, 32)):
        probe.equal(answer(prompt, prompt, 16), want, f"cached_tokens({prompt}, {prompt}, 16)")
    probe.step("as the engine finds them")
    for shared, prompt, size in ((24, 24, 4), (25, 25, 4), (23, 30, 4), (9, 9, 1), (64, 70, 32), (64, 64, 32)):
        want = found_by_engine(shared, prompt, size)
        probe.equal(answer(shared, prompt, size), want, f"cached_tokens({shared}, {prompt}, {size})")


def chain_keys(tokens: Sequence[int], block_size: int, hash_block: Callable[[bytes, tuple], bytes]) -> list[bytes]:
    """A solution of 06.2."""
    keys, key = [], ROOT
    for start in range(0, len(tokens) // block_size * block_size, block_size):
        key = hash_block(key, tuple(tokens[start : start + block_size]))
        keys.append(key)
    return keys


def _keys(parent: bool = True, partial: bool = False, last: bool = False) -> Any:
    """A wrong way to make keys."""

    def answer(tokens: Sequence[int], size: int, hash_block: Callable[[bytes, tuple], bytes]) -> list[bytes]:
        keys, key = [], ROOT
        stop = len(tokens) if partial else len(tokens) // size * size
        for start in range(0, stop, size):
            made = hash_block(key, tuple(tokens[start : start + size]))
            key = made if parent else ROOT
            keys.append(made)
        return keys[-1:] if last else keys

    return answer


@exercise(
    "06.2",
    "A chain of keys",
    hints=(
        "Walk over the full blocks; each key is made from the key before it and the block's tokens.",
        "key = hash_block(key, tuple(tokens[start:start + block_size])), beginning with key = ROOT.",
        "The last, partly filled block has no key: stop at len(tokens) // block_size * block_size.",
    ),
    solution=lambda: chain_keys,
    wrong={
        "each block on its own": lambda: _keys(parent=False),
        "the partly filled block too": lambda: _keys(partial=True),
        "only the last key": lambda: _keys(last=True),
        "backwards": lambda: lambda tokens, size, hash_block: chain_keys(tokens, size, hash_block)[::-1],
        "all tokens at once": lambda: lambda tokens, size, hash_block: [hash_block(ROOT, tuple(tokens))],
    },
)
def chained(answer: Any, probe: Probe) -> None:
    """answer(tokens, block_size, hash_block) -> list of keys."""
    probe.step("it is a function that returns a list with one key per full block")
    probe.function(answer, "chain_keys")
    spell = lambda key, content: key + b"|" + repr(content).encode()  # noqa: E731
    got = answer([1, 2, 3, 4, 5], 2, spell)
    probe.true(isinstance(got, list) and len(got) == 2, "five tokens in blocks of 2 have two full blocks")
    probe.step("each key is made from the key before it and the block's tokens")
    probe.true(
        got == chain_keys([1, 2, 3, 4, 5], 2, spell), "the keys are not hash_block(key before, tokens of the block)"
    )
    probe.step("the same block after another one gets another key (pitfall: a key that ignores what came before)")
    left, right = answer([1, 2, 9, 9], 2, chain), answer([3, 4, 9, 9], 2, chain)
    probe.true(len(left) == len(right) == 2 and left[1] != right[1], "[9, 9] must not have one key in both")
    probe.step("with the lab's own hash, for other sizes")
    for length, size in ((0, 4), (3, 4), (4, 4), (33, 16), (48, 16)):
        tokens = list(range(length))
        right_keys = chain_keys(tokens, size, chain)
        probe.true(answer(tokens, size, chain) == right_keys, f"the keys of {length} tokens in blocks of {size}")


def fewest_computed() -> int:
    """The best that any order of the parts reaches."""
    return min(computed_with(order) for order in permutations(PARTS))


BEST = ("instructions", "tools", "profile of the user", "question", "time of day")


@exercise(
    "06.3",
    "In which order?",
    hints=(
        "A cache shares beginnings. What comes after the first difference is never found, however equal it is.",
        "First what is the same for everybody, then what is the same for some, last what is new in every request.",
        "instructions and tools, then the profile of the user, then question and time of day.",
    ),
    solution=lambda: list(BEST),
    wrong={
        "the time first": lambda: ["time of day", "instructions", "tools", "profile of the user", "question"],
        "the profile first": lambda: ["profile of the user", "instructions", "tools", "question", "time of day"],
        "the profile last": lambda: ["instructions", "tools", "question", "time of day", "profile of the user"],
        "a part is missing": lambda: ["instructions", "tools", "profile of the user", "question"],
        "a part twice": lambda: ["instructions", "instructions", "tools", "question", "time of day"],
    },
)
def order_of_parts(answer: Any, probe: Probe) -> None:
    """answer is a list of the five names."""
    probe.step("it is a list of the five parts, each once")
    named = isinstance(answer, list | tuple) and all(isinstance(part, str) for part in answer)
    probe.true(named and sorted(answer) == sorted(PARTS), f"give each of {', '.join(PARTS)} once")
    probe.step("no other order computes fewer tokens")
    computed, best = computed_with(tuple(answer)), fewest_computed()
    probe.true(computed == best, f"yours computes {computed} tokens, there is one with {best}")


def unsaved(trace: RunTrace) -> list[int]:
    """A solution of 06.4."""
    found, claimed = [], {}
    for step in trace:
        for event in step.events:
            if event.kind == "admitted":
                claimed[event.request] = event.value
        for row in step.rows:
            if row.request in claimed and row.start != claimed.pop(row.request):
                found.append(row.request)
    return found


def _every_hit(trace: RunTrace) -> list[int]:
    return [event.request for event in trace.events() if event.kind == "admitted" and event.value]


def _starts_at_zero(trace: RunTrace) -> list[int]:
    seen, found = set(), []
    for step in trace:
        for row in step.rows:
            if row.request not in seen and row.start == 0:
                found.append(row.request)
            seen.add(row.request)
    return found


def _misses(trace: RunTrace) -> list[int]:
    return [event.request for event in trace.events() if event.kind == "admitted" and not event.value]


def family(planted: Any = None, cache: str = "radix") -> RunTrace:
    """Eight prompts, six of which begin alike, through a healthy or a broken engine."""
    prompts = [tuple(range(40)) + tuple(range(500 + 10 * i, 506 + 10 * i)) for i in range(6)]
    prompts[2:2] = [tuple(range(900, 930)), tuple(range(700, 719))]
    work = fixed_workload(prompts, [3] * 8, [1.0 * i for i in range(8)])
    options = {"prefix_cache": cache, "batching": "continuous:2", "blocks": 64, "block_size": 8}
    return run_planted(work, Priced(), planted or (lambda engine: None), **options).trace


@exercise(
    "06.4",
    "Break it: a cache that is on and does nothing",
    hints=(
        'An event of kind "admitted" says in `value` how many tokens the cache had.',
        "The first row of that request after its admission must start there: row.start == value.",
        "Keep a dict request → value from the events of a step, then look at the step's rows, and take the request "
        "out of the dict at its first row.",
    ),
    solution=lambda: unsaved,
    wrong={
        "nobody": lambda: lambda trace: [],
        "everybody who hits": lambda: _every_hit,
        "everybody who starts at 0": lambda: _starts_at_zero,
        "everybody who misses": lambda: _misses,
        "only the first": lambda: lambda trace: unsaved(trace)[:1],
    },
)
def on_but_idle(answer: Any, probe: Probe) -> None:
    """answer(trace) -> list of request ids."""
    probe.step("it is a function")
    probe.function(answer, "unsaved")
    for cache in ("none", "hash", "radix"):
        probe.step(f"a healthy engine, prefix cache {cache}: nobody")
        probe.equal(answer(family(cache=cache)), [], f"unsaved(healthy, {cache})")
    probe.step("the broken engine: exactly those whose prefix was found")
    trace = family(found_and_not_used)
    probe.equal(answer(trace), unsaved(trace), "unsaved(broken)")


def forgets(make_tree: Callable[[], TinyTree], sentences: Sequence[str]) -> list[tuple[str, str]]:
    """A solution of 06.5."""
    tree, known, found = make_tree(), [], []
    for sentence in sentences:
        tree.insert(sentence)
        known.append(sentence)
        found += [(sentence, old) for old in known if tree.match(old) < len(old.split())]
    return found


def broken_tree() -> TinyTree:
    """A TinyTree over the cache with the bug of 06.5."""
    return TinyTree(BookTree())


def _only_after_the_last(make_tree: Callable[[], TinyTree], sentences: Sequence[str]) -> list[tuple[str, str]]:
    right = forgets(make_tree, sentences)
    return [pair for pair in right if pair[0] == sentences[-1]]


def _only_the_new_one(make_tree: Callable[[], TinyTree], sentences: Sequence[str]) -> list[tuple[str, str]]:
    return [pair for pair in forgets(make_tree, sentences) if pair[0] == pair[1]]


def _forgets_the_new_one(make_tree: Callable[[], TinyTree], sentences: Sequence[str]) -> list[tuple[str, str]]:
    return [pair for pair in forgets(make_tree, sentences) if pair[0] != pair[1]]


SENTENCES = (
    ("a b c d", "a b x y"),
    ("a b c d", "e f g", "a b c d h"),
    ("to be or not to be", "to be is to do", "to be or", "do be do be do"),
    ("one two", "one two three", "four"),
)


@exercise(
    "06.5",
    "Break it: a tree that forgets",
    hints=(
        "Nothing is ever evicted here, so whatever was inserted must be found in full, always.",
        "After each insert, ask for every sentence so far: tree.match(old) should be len(old.split()).",
        "found += [(sentence, old) for old in known if tree.match(old) < len(old.split())]",
    ),
    solution=lambda: forgets,
    wrong={
        "never": lambda: lambda make, sentences: [],
        "asks only at the end": lambda: _only_after_the_last,
        "asks only for the new one": lambda: _only_the_new_one,
        "does not ask for the new one": lambda: _forgets_the_new_one,
        "the pair turned round": lambda: lambda make, s: [(old, new) for new, old in forgets(make, s)],
    },
)
def lost_halves(answer: Any, probe: Probe) -> None:
    """answer(make_tree, sentences) -> list of (inserted, forgotten)."""
    probe.step("it is a function")
    probe.function(answer, "forgets")
    for sentences in SENTENCES:
        probe.step(f"a healthy tree forgets nothing: {', '.join(sentences)}")
        probe.equal(answer(TinyTree, list(sentences)), [], "forgets(TinyTree, …)")
        probe.step(f"the broken one: {', '.join(sentences)}")
        probe.equal(answer(broken_tree, list(sentences)), forgets(broken_tree, sentences), "forgets(broken_tree, …)")
