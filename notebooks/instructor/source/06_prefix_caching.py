# %% [markdown]
# # Prefix caching
#
# **Question.** A thousand requests begin with the same instructions. Must their keys and values be computed a thousand times?
#
# Keys and values of a token depend on *that token and all tokens before it*, and on nothing else.
# So two prompts that begin alike have the same keys and values as far as they agree: the engine may keep the blocks and
# share them. That is all. The rest is bookkeeping: how to find a prefix, what to forget, and how to notice that it does not work.
#
# You will build both kinds of bookkeeping in small, count exactly what they save, measure it on the real model, and find two caches
# that are broken in ways no test of the answers shows.
#
# About 50 minutes. Notebook [05](05_paged_kv_cache.ipynb) comes first.

# %% tags=["nbval-ignore-output"]
import lab
from lab import traces
from lab.course import broken_memory, plots_memory, quick, scale
from lab.course.exercises.nb06 import broken_tree, found_by_engine
from lab.course.prompt_parts import PARTS, computed_with, prompts_only
from lab.course.tiny_tree import TinyTree, keys_of
from lab.memory.hash_cache import ROOT, HashCache, chain
from lab.memory.radix_cache import RadixCache
from lab.memory.replay import hit_rate
from lab.shared_prefixes import WORKLOADS
from lab.workload import DATA

model = lab.load_model()
prices = lab.Priced(step=0.040, token=0.002)
print(f"{model.name}; workloads: {', '.join(WORKLOADS)}")

# %% [markdown]
# ## 1. Watch it
#
# Questions to three assistants, each behind its long system prompt. First without a cache, then with one. Look at the length of the orange
# stretches (prefill): which of them shrink, and which do not?

# %% tags=["nbval-ignore-output"]
questions = WORKLOADS["system-prompt"](requests=quick(12, 6), rate=quick(0.8, 2.0), seed=1, max_tokens=4)
runs = {"no cache": dict(prefix_cache="none"), "prefix cache": dict(prefix_cache="radix")}
session = lab.live.Session(questions, model, runs, name="06", batching="continuous:8")
session.dashboard()

# %% tags=["nbval-ignore-output"]
session.stop()

# %% [markdown]
# ## 2. A chain of hashes
#
# Whole blocks are shared, because a block table can only point to whole blocks. So a dictionary *content of a block → block* would do?
# Not quite. The same 16 tokens after another beginning have other keys and values. What identifies a block is its content **and all that
# came before**. vLLM makes a key from the block's tokens and *the key of the block before it*:

# %%
lab.course.show(chain)

# %% tags=["nbval-check-output"]
for sentence in ("you are a helpful cook now", "you are a grumpy cook now", "he was a helpful cook now"):
    print("   ".join(keys_of(sentence)))

# %% [markdown]
# Read the second column: "helpful cook now" stands in the first and in the last line, with different keys. Finding a prefix is then a walk: look up the
# first key, the second, and so on, until one is missing.
#
# Two details matter (see the sources): the key must be the same in every process, which Python's own `hash` of a
# text is not; and two contents *may* have the same key, so a hit also compares the tokens.

# %% [markdown]
# ## 3. A tree
#
# SGLang keeps a **radix tree** instead: a run of tokens on each edge, and where two prompts part, the edge is **split**.
# To see it, here is the lab's real tree, fed with words instead of tokens and blocks of one word.

# %%
lab.predict(
    "06.p1",
    "“you are a helpful cook : soup ?” is in the tree, as one node. How many nodes are there after "
    "“you are a helpful cook : cake ?”?",
    options=["1", "2", "3", "4"],
)

# %% tags=["nbval-ignore-output"]
tree = TinyTree()
tree.insert("you are a helpful cook : soup ?", keep=True)  # its request is still running
tree.insert("you are a helpful cook : cake ?")
tree.insert("you are a poet : rhyme on rain")
tree.match("you are a helpful cook : soup ? with beans")
tree.evict(3)
tree.evict(20)
plots_memory.trees(tree)

# %%
lab.reveal("06.p1", "3", "The common part, and one node for each ending.")

# %% [markdown]
# Step by step:
#
# 1. One prompt, one node. Its request is running, so its path is *locked* (green): nobody may take these blocks away.
# 2. The second prompt agrees in six words. The edge is split there; only two words are new.
# 3. The third agrees in three. Split again, higher up.
# 4. Looking something up follows the tree as far as words agree, and changes nothing.
# 5. Memory is short: three words must go. Only **leaves** may be evicted, least recently used first and from their ends: "cake ?" and then "rain".
# 6. Twenty are wanted, but only what nobody uses can be given up.
#
# ### Which of the two is better?

# %% tags=["nbval-check-output"]
mooncake = traces.load(DATA / "synthetic" / "mooncake-like.jsonl")
both = {"hash": HashCache(), "radix": RadixCache()}
for name, cache in both.items():
    print(f"{name:6} finds {hit_rate(mooncake, cache, block_size=512).of_tokens:.2%} of the prompt tokens")
nodes = sum(1 for _ in both["radix"].nodes())
print(f"entries to look after: {both['radix'].num_blocks:,} keys in the dictionary, {nodes} nodes in the tree")

# %% [markdown]
# They find the same: both know every full block of every prompt. They differ in bookkeeping. The dictionary has one entry per block and no
# structure; the tree has one node per branching point, and *knows* which prompts share what, which is useful for scheduling
# (notebook [08](08_cache_aware_scheduling.ipynb)). SGLang's tree can also match single tokens; with pages of one token nothing is lost to rounding.

# %% [markdown]
# ## 4. What is found, exactly
#
# Two rules decide how much of a prompt is taken from the cache:
#
# - **Whole blocks.** A block that is only partly equal, or only partly full, is not shared.
# - **At least one token is computed.** If the whole prompt is cached, there is still nothing to *sample from*: logits are not kept.

# %%
lab.predict(
    "06.p2",
    "The same prompt of 32 tokens is asked twice, blocks of 16. How many tokens does the second request "
    "take from the cache?",
    options=["0", "16", "31", "32"],
)

# %% tags=["nbval-check-output"]
print("the same prompt, asked a second time (blocks of 16):")
for length in (15, 16, 17, 31, 32, 33, 48, 49):
    found = found_by_engine(length, length, 16)
    print(f"  {length} tokens: {found} from the cache, {length - found} computed")

# %%
lab.reveal("06.p2", str(found_by_engine(32, 32, 16)))

# %% [markdown]
# And how do we know that the cache *works*? Equal tokens prove nothing: without any cache they are right as well. The proof is a **counter**:
# computed tokens must fall by exactly the tokens taken from the cache, not one more or less.
# Four workloads with real text, on the virtual clock (without a model, a "token" here is four characters):

# %%
lab.predict(
    "06.p3",
    "Questions to three assistants with long system prompts: what share of the prompt tokens comes from "
    "the cache?",
    unit="%",
)

# %% tags=["nbval-check-output"]
counted = {}
for name, make in WORKLOADS.items():
    work = make(requests=24, rate=1.0, seed=0)
    caches = {cache: dict(prefix_cache=cache) for cache in ("none", "hash", "radix")}
    counted[name] = lab.compare(work, prices, caches, batching="continuous:8")
    none, hashed, radix = (counted[name][cache] for cache in caches)
    prompt = sum(info.num_prompt for info in none.trace.requests.values())
    exact = none.computed_tokens - radix.computed_tokens == radix.cached_tokens == hashed.cached_tokens
    print(f"{name:13} computed {none.computed_tokens:5d} → {radix.computed_tokens:5d},", end=" ")
    print(f"from the cache {radix.cached_tokens:5d}", end=" ")
    print(f"({radix.cached_tokens / prompt:4.0%} of the prompts), exact: {exact},", end=" ")
    print(f"TTFT {none.ttft_s.p50:.2f} → {radix.ttft_s.p50:.2f} s")

# %%
system = counted["system-prompt"]
prompt = sum(info.num_prompt for info in system["none"].trace.requests.values())
lab.reveal("06.p3", 100 * system["radix"].cached_tokens / prompt, unit="%")

# %% tags=["nbval-ignore-output"]
plots_memory.computed_and_cached({name: comparison.reports for name, comparison in counted.items()})

# %% [markdown]
# - `chat` shares nothing but a few tokens of the template, less than a block. The cache costs nothing and gives nothing.
# - `multi-turn` shares less than one might think: each conversation begins anew, each turn adds text that is new, and ends are rounded to blocks.
# - Output tokens are cached too: in a real chat the next turn also finds the answer of the last one. (Here the answers in the conversations are written
#   by us, so that prompts do not depend on the run, and have to be computed once.)
# - A block is visible to others only once it is *computed*. Two equal prompts in the same step do not help each other.
#
# ### The same on an H100
#
# The three assistants again, with Llama-3-8B on an H100 (*simulated*, notebook [11](11_two_clocks.ipynb)); then one prompt of
# which nine tenths are cached:

# %% tags=["nbval-check-output"]
h100 = lab.simulated("llama-3-8b", on="h100-sxm")
there = lab.compare(WORKLOADS["system-prompt"](requests=24, rate=1.0, seed=0), h100, caches, batching="continuous:8")
for place, pair in {"reference prices": counted["system-prompt"], "H100, simulated": there}.items():
    print(f"{place}: TTFT {1000 * pair['none'].ttft_s.p50:.1f} → {1000 * pair['radix'].ttft_s.p50:.1f} ms")
for length in (200, 2000, 20_000):
    whole, rest = scale.prompt_plan(length), scale.prompt_plan(length // 10, start=length - length // 10)
    print(f"{length:,} tokens: {1000 * h100.price(whole):.1f} → {1000 * h100.price(rest):.1f} ms (H100, simulated)")

# %% [markdown]
# A step of 200 tokens costs the H100 hardly more than a step of 20: both wait for the weights. The cache finds as much as here, and saves
# little. It pays for *long* prefixes, and they are what it is used for.

# %% [markdown]
# ## 5. Measured
#
# The real model. Both runs must give the same tokens.

# %%
lab.predict(
    "06.p4",
    "How many times shorter is the median time to the first token with the cache, on this computer?",
    unit="×",
)

# %% tags=["nbval-ignore-output"]
measured = lab.compare(questions, model, runs, batching="continuous:8")
for name, report in measured.reports.items():
    print(f"{name:13} {report.computed_tokens:5d} tokens computed,", end=" ")
    print(f"{report.cached_tokens:5d} from the cache,", end=" ")
    print(f"TTFT median {report.ttft_s.p50:.2f} s, same tokens: {measured.same[name]}")

# %% tags=["nbval-ignore-output"]
none, cached = measured["no cache"], measured["prefix cache"]
lab.reveal("06.p4", none.ttft_s.p50 / cached.ttft_s.p50, unit="×")

# %% tags=["nbval-ignore-output"]
plots_memory.first_tokens(measured.reports)

# %% tags=["nbval-ignore-output"]
saved = none.computed_tokens - cached.computed_tokens
print(f"computed tokens fell by {saved}, taken from the cache: {cached.cached_tokens}: exact:", end=" ")
print(f"{saved == cached.cached_tokens}")
print(f"{none.computed_tokens / cached.computed_tokens:.1f}× fewer tokens,", end=" ")
print(f"{none.ttft_s.p50 / cached.ttft_s.p50:.1f}× the TTFT,", end=" ")
print(f"TPOT {1000 * none.tpot_s.p50:.0f} → {1000 * cached.tpot_s.p50:.0f} ms")

# %% [markdown]
# ### What this shows, and what it does not
#
# - The **first** request to each assistant is as slow as before: somebody has to compute the prefix.
# - TTFT is shortened twice: one's own prefill is short, and so are the prefills one has to wait for. At a low load you see only the first of these.
# - The decode of an answer is not shortened: the cache saves computing keys and values, not reading them. What TPOT gains here, it gains because fewer
#   prefills of others get in between.
# - It says nothing about *your* traffic. Hit rates are a property of the prompts. "Same tokens" is also not "same bits": a prompt computed in
#   two parts uses matrices of another shape, which rounds differently (notebook [08](08_cache_aware_scheduling.ipynb), section 5).

# %% [markdown]
# ## 6. How much memory does a cache need?
#
# The cache lives in the same pool as the running requests. A block that nobody uses stays cached until somebody needs room. So the hit rate
# depends on how long a prefix survives. Traffic like the conversation trace that Mooncake published (made by us; its statistics match, its
# requests are not real), blocks of 512 tokens:

# %%
lab.predict(
    "06.p5",
    "With a cache that never forgets, what share of the prompt tokens of this trace would be found?",
    unit="%",
)

# %% tags=["nbval-check-output"]
short = prompts_only(mooncake)  # answers of one token: only prompts matter here
total = sum(spec.prompt for spec in mooncake.specs)
pool = dict(prefix_cache="radix", block_size=512, batching="continuous:4", chunking="whole")
rates = {}
for blocks in (300, 600, 1000, 2000, 4000):
    rates[blocks] = lab.run(short, lab.Priced(step=0.02, token=1e-5), blocks=blocks, **pool).cached_tokens / total
    print(f"{blocks:5d} blocks ({512 * blocks:9,} tokens): {rates[blocks]:.1%} of the prompt tokens found")
best = hit_rate(mooncake, RadixCache()).of_tokens
print(f"never forgetting: {best:.1%}")

# %%
lab.reveal("06.p5", 100 * best, unit="%", note="The real trace: 37.4 % (data/synthetic/README.md).")

# %% tags=["nbval-ignore-output"]
plots_memory.hit_curve(rates, best)

# %% [markdown]
# More memory buys less and less, and beyond a point nothing: most of this traffic simply never repeats. No cache can find what nobody has asked before.

# %% [markdown]
# ## Exercises
#
# ### 06.1 How much is found? (fill in)
# A prompt of `prompt` tokens arrives. Its first `shared` tokens are cached, in blocks of `block_size`. How many tokens does it take from the cache?

# %%
def cached_tokens(shared, prompt, block_size):
    """Tokens taken from the cache: whole blocks, and at least one token stays to compute."""
    ### BEGIN SOLUTION
    return min(shared, prompt - 1) // block_size * block_size
    ### END SOLUTION

lab.check("06.1", cached_tokens)

# %% [markdown]
# ### 06.2 A chain of keys (fill in)
# Return the keys of all *full* blocks of a prompt. `hash_block(key_before, tokens_of_the_block)` makes one key; the first block comes after `ROOT`.
# The tokens of a block are a tuple.

# %%
def chain_keys(tokens, block_size, hash_block):
    """One key per full block, each made from the key before it."""
    ### BEGIN SOLUTION
    keys, key = [], ROOT
    for start in range(0, len(tokens) // block_size * block_size, block_size):
        key = hash_block(key, tuple(tokens[start : start + block_size]))
        keys.append(key)
    return keys
    ### END SOLUTION

lab.check("06.2", chain_keys)

# %% tags=["nbval-check-output"]
with lab.course.when_done("06.2"):
    for tokens in ([1, 2, 9, 9, 5], [3, 4, 9, 9]):
        print(tokens, [key.hex()[:6] for key in chain_keys(tokens, 2, chain)])

# %% [markdown]
# ### 06.3 In which order? (explore)
# Prompts are put together from five parts. `PARTS` says how long each is and how many versions of it there are among 24 requests.
# `computed_with(order)` counts the tokens computed for all of them with a cache.
# **Find an order that computes the fewest.**

# %% tags=["nbval-check-output"]
for part, (length, versions) in PARTS.items():
    print(f"{part:20} {length:3d} tokens, {versions} versions")
order = ("time of day", "instructions", "tools", "profile of the user", "question")
print(f"in this order: {computed_with(order):,} tokens computed;", end=" ")
print(f"without any cache {24 * sum(n for n, _ in PARTS.values()):,}")

# %%
### BEGIN SOLUTION
### STUB: order_of_parts = ...  # your answer: a list with the five names
order_of_parts = ["instructions", "tools", "profile of the user", "question", "time of day"]
### END SOLUTION
lab.check("06.3", order_of_parts)

# %% [markdown]
# A clock at the top of a prompt makes every request new from its first block on.
#
# ### 06.4 A cache that is on and does nothing (break it)
# The engine says that its prefix cache is on, and reports what it found. Tokens are right. What is wrong?

# %% tags=["nbval-check-output"]
asked = WORKLOADS["few-shot"](requests=12, rate=1.0, seed=0)
options = dict(batching="continuous:8", prefix_cache="radix", blocks=400)
healthy = lab.run(asked, prices, **options)
suspect = broken_memory.run(asked, prices, "06.4", **options)
for name, report in {"healthy": healthy, "suspect": suspect}.items():
    print(f"{name}: {report.cached_tokens} tokens from the cache,", end=" ")
    print(f"{report.computed_tokens} computed, TTFT {report.ttft_s.p50:.3f} s")

# %% tags=["nbval-ignore-output"]
plots_memory.first_tokens({"healthy": healthy, "suspect": suspect})

# %% [markdown]
# Write the check. An event of `kind` "admitted" says in its `value` how many tokens the cache had for `event.request`. The first row of that request after
# that, in `step.rows`, has a `start`: the tokens that were there already. Return the requests for which the two differ.

# %%
def unsaved(trace):
    """Requests that were told of cached tokens and computed them all the same."""
    ### BEGIN SOLUTION
    found, claimed = [], {}
    for step in trace:
        for event in step.events:
            if event.kind == "admitted":
                claimed[event.request] = event.value
        for row in step.rows:
            if row.request in claimed and row.start != claimed.pop(row.request):
                found.append(row.request)
    return found
    ### END SOLUTION

lab.check("06.4", unsaved)

# %% tags=["nbval-check-output"]
with lab.course.when_done("06.4"):
    print("healthy:", unsaved(healthy.trace))
    print("suspect:", unsaved(suspect.trace))

# %% [markdown]
# ### 06.5 A tree that forgets (break it)
# A book on performance engineering has a radix tree with a mistake in its split. `broken_tree()` has the same one. Nothing is evicted; what happens?

# %% tags=["nbval-ignore-output"]
bad = broken_tree()
bad.insert("1 2 3 4")
bad.match("1 2 3 4")
bad.insert("1 2 5 6")
bad.match("1 2 3 4")
plots_memory.trees(bad)

# %% [markdown]
# Four of four, then none of four. Write the property that finds it in *any* tree. `make_tree()` gives an empty tree with `insert(sentence)` and
# `match(sentence)`, the number of its words that are found. Insert the sentences one by one. After each, every sentence inserted so far, the new one too, must
# be found in full. Return all pairs (sentence just inserted, sentence that is not found), in that order.

# %%
def forgets(make_tree, sentences):
    """Pairs (just inserted, no longer found in full)."""
    ### BEGIN SOLUTION
    tree, known, found = make_tree(), [], []
    for sentence in sentences:
        tree.insert(sentence)
        known.append(sentence)
        found += [(sentence, old) for old in known if tree.match(old) < len(old.split())]
    return found
    ### END SOLUTION

lab.check("06.5", forgets)

# %% tags=["nbval-check-output"]
with lab.course.when_done("06.5"):
    for make in (TinyTree, broken_tree):
        print(f"{make.__name__}: {forgets(make, ['a b c', 'a b d', 'x y'])}")

# %% [markdown]
# <details><summary>The bug, when you have found it</summary>
#
# A split makes a new node for the common part. It must be hung under the parent *in place of* the old node. The broken one forgets that: the parent still points to
# the lower half, which now begins with other words. Both prompts are in memory, and out of reach.
# </details>

# %% [markdown]
# ## In real engines
#
# | engine | prefix cache |
# |---|---|
# | vLLM | chained block hashes, on by default: `--no-enable-prefix-caching` turns it off; `--prefix-caching-hash-algo` chooses the hash; a request may bring a `cache_salt`, so that tenants do not share |
# | SGLang | radix tree, on by default: `--disable-radix-cache`; `--page-size`; `--enable-hierarchical-cache` keeps evicted pages on the host |
# | TensorRT-LLM | `KvCacheConfig(enable_block_reuse=True)`, blocks in a search tree; `enable_partial_reuse` also uses part of a block, by copying it |
# | hosted APIs | the answer's usage may count `cached_tokens` of the prompt: the counter of section 4 |
#
# A shared cache can be *timed*: a fast first token tells that somebody has asked the same before. Hence the salt.

# %% [markdown]
# ## Summary
#
# - Prompts that begin alike have equal keys and values as far as they agree. Whole blocks of them can be shared.
# - A hash chain and a radix tree find the same; the tree knows more about what is shared.
# - Cached and computed tokens add up exactly. Check the counter, not the answers: a cache that is on and does nothing gives right answers.
# - It shortens the time to the first token, for those who share a beginning. Put what changes at the end of a prompt.
# - What is found depends on the traffic first, on memory second.
#
# Next: notebook 07 turns to long prompts; [08](08_cache_aware_scheduling.ipynb) asks whether the *order* of requests can help the cache.
#
# ## Sources
#
# - Zheng et al., *SGLang: Efficient Execution of Structured Language Model Programs*, NeurIPS 2024, [arXiv 2312.07104](https://arxiv.org/abs/2312.07104): RadixAttention.
# - vLLM: [automatic prefix caching](https://docs.vllm.ai/en/latest/features/automatic_prefix_caching.html);
#   keys that collide: [issue 12621](https://github.com/vllm-project/vllm/issues/12621), [issue 15297](https://github.com/vllm-project/vllm/issues/15297).
# - TensorRT-LLM: [KV cache system](https://nvidia.github.io/TensorRT-LLM/features/kvcache.html).
# - Mooncake traces: Qin et al., *Mooncake*, FAST 2025, [kvcache-ai/Mooncake](https://github.com/kvcache-ai/Mooncake). Our file only matches its statistics.
# - Exercise 06.4: [rasbt/LLMs-from-scratch issue 913](https://github.com/rasbt/LLMs-from-scratch/issues/913),
#   [issue 981](https://github.com/rasbt/LLMs-from-scratch/issues/981), caches that were not used, found from the speed alone.
# - Exercise 06.5: `radix_attention_example.py` in chapter 16 of
#   [cfregly/ai-performance-engineering](https://github.com/cfregly/ai-performance-engineering), reduced to its split.
