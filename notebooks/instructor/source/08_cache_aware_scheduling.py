# %% [markdown]
# # Cache-aware scheduling
#
# **Question.** A prefix cache is small, and many requests wait. If those who share a beginning are served one after the other, the cache still has it.
# Should the *order* of requests depend on what is cached, and who pays for that?
#
# You will see an order that is provably best for a fixed set of requests, watch it starve somebody when requests keep coming, compare three cures in
# numbers, and put the order against the size of the batch. At the end: why answers of a batch may differ by a token although nothing is wrong.
#
# About 55 minutes. Notebook [06](06_prefix_caching.ipynb) comes first.

# %% tags=["nbval-ignore-output"]
import lab
from lab.course import broken_memory, families, invariance, order_grid, plots_memory, quick
from lab.course.exercises.nb08 import common, long_family, longest_wait, one_by_one, with_order
from lab.course.order_rule import OrderRule
from lab.ordering.prefix import LongestPrefix
from lab.running import LOGIT_TOLERANCE
from lab.shared_prefixes import WORKLOADS

model = lab.load_model()
prices = lab.Priced(step=0.040, token=0.002)
print(f"{model.name} is ready")

# %% [markdown]
# ## 1. Watch it
#
# Questions to three assistants, all of them there from the start, in random order. The pool is small: it holds one running request and not much more.
# First come, first served, then **longest prefix first**: always the one whose prompt has the most cached tokens.
# Watch the orange stretches (prefill). How often does an assistant's long prompt have to be computed?

# %% tags=["nbval-ignore-output"]
questions = families.all_at_once(WORKLOADS["system-prompt"](requests=quick(9, 6), seed=2, max_tokens=2))
runs = {"first come": dict(ordering="fcfs"), "longest prefix": dict(ordering="longest-prefix")}
small = dict(prefix_cache="radix", batching="continuous:1", blocks=20)
session = lab.live.Session(questions, model, runs, name="08", **small)
session.dashboard()

# %% tags=["nbval-ignore-output"]
session.stop()

# %% tags=["nbval-ignore-output"]
measured = lab.compare(questions, model, runs, **small)
for name, report in measured.reports.items():
    print(f"{name:15} {report.computed_tokens} tokens computed, {report.cached_tokens} from the cache,", end=" ")
    print(f"TTFT median {report.ttft_s.p50:.2f} s, all done after {report.duration_s:.2f} s,", end=" ")
    print(f"same tokens: {measured.same[name]}")

# %% tags=["nbval-ignore-output"]
plots_memory.first_tokens(measured.reports)

# %% [markdown]
# Same requests, same cache, same tokens. Only the order differs. (In the picture requests stand by arrival: look at who wins and who loses.)

# %% [markdown]
# ## 2. The best order there is
#
# Paths through three trees of questions, 24 requests on the virtual clock, all there from the start, one seat. How does the size of the pool change things?
# **Depth first** visits the tree of all prompts branch by branch. For a fixed set of requests, and a cache that holds the longest of them, that is optimal
# (SGLang's paper, theorem 3.1), and longest prefix first is one such order.

# %%
lab.predict(
    "08.p1",
    "In the smallest pool: how many times more tokens does longest prefix first take from the cache than "
    "first come, first served?",
    unit="×",
)

# %% tags=["nbval-check-output"]
tree = families.all_at_once(WORKLOADS["tree"](requests=24, seed=0))
orders = ("fcfs", "longest-prefix", "depth-first")
print("blocks  tokens from the cache: " + "".join(f"{order:>16}" for order in orders))
hits = {}
for blocks in (18, 24, 32, 48, 96):
    one_seat = dict(prefix_cache="radix", batching="continuous:1", blocks=blocks)
    hits[blocks] = {order: lab.run(tree, prices, ordering=order, **one_seat).cached_tokens for order in orders}
    print(f"{blocks:6d} {'':23}" + "".join(f"{value:16d}" for value in hits[blocks].values()))

# %%
lab.reveal("08.p1", hits[18]["longest-prefix"] / hits[18]["fcfs"], unit="×")

# %% [markdown]
# A cache that holds everything needs no order. A cache that holds one branch depends on it entirely.
#
# Do not believe the theorem; try. Six prompts of two families can be served in 720 orders. All of them:

# %%
lab.predict("08.p2", "What share of all 720 orders finds as many tokens as the best one?", unit="%")

# %% tags=["nbval-check-output"]
batch = families.small_batch()
every = families.every_order(batch)
marks = {"first come": "fcfs", "longest prefix": "longest-prefix", "depth first": "depth-first"}
marks = {name: families.served(batch, order) for name, order in marks.items()}
print(f"{len(every)} orders find {min(every)} to {max(every)} tokens;", end=" ")
print(f"{every.count(max(every))} of them find {max(every)}")
print(marks)

# %%
lab.reveal("08.p2", 100 * every.count(max(every)) / len(every), unit="%")

# %% tags=["nbval-ignore-output"]
plots_memory.all_orders(every, marks)

# %% [markdown]
# The order itself is one line. The scheduler tells it how much of a waiting prompt is cached *now*; the key is looked up anew before each
# step, because every step changes the cache.

# %%
lab.course.show(LongestPrefix.key)

# %% [markdown]
# ## 3. The stranger
#
# The theorem is about a fixed set. Now requests keep coming: a stream that shares its beginning, slightly faster than it can be served, and half a
# second after the start one prompt that shares nothing.

# %%
lab.predict(
    "08.p3",
    "The stream lasts about 5.4 s. After how many seconds is the stranger's prompt started, with longest "
    "prefix first?",
    unit="s",
)

# %% tags=["nbval-check-output"]
stream, stranger = families.with_stranger()
cures = {
    "first come": "fcfs",
    "longest prefix": "longest-prefix",
    "… aged 0.5 s": "aged:longest-prefix:0.5s",
    "k-LPM, k = 4": "k-lpm:4",
    "k-LPM, k = 16": "k-lpm:16",
    "response ratio": "hrrn",
}
shared = dict(prefix_cache="radix", batching="continuous:2", blocks=40)
reports = {name: lab.run(stream, prices, ordering=order, **shared) for name, order in cures.items()}
for name, report in reports.items():
    print(f"{name:15} the stranger waits {families.wait_of(report, stranger):5.2f} s; all:", end=" ")
    print(f"TTFT median {report.ttft_s.p50:.2f} s,", end=" ")
    print(f"p95 {report.ttft_s.p95:.2f} s, worst {longest_wait(report):.2f} s; found {families.found(report):.1%}")

# %%
lab.reveal("08.p3", families.wait_of(reports["longest prefix"], stranger), unit="s")

# %% tags=["nbval-ignore-output"]
plots_memory.stranger(reports, stranger)

# %% [markdown]
# Longest prefix first never gets round to the stranger: there is always somebody who shares more. It is served when the stream has ended. And look at the other columns:
# **median and p95 are best in the run that starves somebody.** A report without the worst wait would recommend it.
# In production this has been seen: a median of 0.7 s, and requests that miss the cache wait 20 to 60 s (sglang issue 31954).
#
# Three cures:
#
# - **Ageing**: whoever has waited for so many seconds goes first, oldest first. One number to choose; bounds who can overtake whom.
# - **k-LPM**: the oldest, then k − 1 longest matches, and again. k = 1 is first come, first served; a large k is longest prefix first.
# - **Highest response ratio next**: (waited + uncached) ÷ uncached. Whoever waits rises, whoever has little to compute rises faster. No number to choose.
#
# What a cure costs the others here is the stranger's own long prefill, which somebody has to wait for. All find equally much: who goes first changes who waits.
# None is free of assumptions: if requests come faster than they are served for ever, *everybody* is old in the end, and ageing is first come, first served.

# %% [markdown]
# ## 4. Seats against sharing: an open question
#
# Two wishes pull apart. A **large batch** uses each step better (notebook 01). But its requests hold blocks, which a cache could have used for prefixes; and many requests at once have many
# prefixes at once. An order that serves one family after the other wants few. So: does it pay to keep the batch small, for the cache's sake? Do both gains add up?
# Which order is enough? There is theory for parts of it (deciding whether all deadlines can be met is NP-hard once prefixes are shared, says the k-LPM paper), and no general answer.
#
# An experiment: ten families with 256 common tokens each, more requests than can be served, a pool that holds about six of the prefixes; five orders × four numbers of seats × three seeds.

# %%
lab.predict(
    "08.p4",
    "From 2 seats, first come: better order and more seats are each worth something. Together they are worth …",
    options=["less than the product of both", "about the product", "more than the product"],
)

# %% tags=["nbval-check-output"]
cells = order_grid.grid(seats=(2, 4, 8, 16))
print("order           seats   found   tokens/s       TTFT median   worst   running   preemptions")
for (name, seats), cell in cells.items():
    print(f"{name:15} {seats:5d} {cell.found:7.0%} {cell.tokens_per_s:8.0f} ± {cell.spread:3.0f}", end="")
    print(f"{cell.median_s:12.1f} s {cell.worst_s:6.1f} s {cell.running:7.1f} {cell.preemptions:9.0f}")

# %% tags=["nbval-check-output"]
for line in order_grid.verdict(cells):
    print("-", line)

# %%
both = next(line for line in order_grid.verdict(cells) if line.startswith("the order alone"))
options = ("less than the product of both", "about the product", "more than the product")
lab.reveal("08.p4", next(option for option in options if option[:18] in both))

# %% tags=["nbval-ignore-output"]
plots_memory.seats_and_orders(cells)

# %% [markdown]
# How to read it:
#
# - With first come, first served, seats beyond eight change nothing: *memory* is full, not the batch. The preemptions show it.
# - The wishes do pull apart: with the orders that look at the cache most closely, every step to more seats costs hits. It is worth it all the same: a fuller step is
#   worth more than what is computed again.
# - Together they gain more than the product, because an order that brings a family together holds its common blocks *once*. So more requests fit (column "running").
# - A trap in the counting: a preempted request that comes back finds its own blocks, and that counts as cached too. "Found" here counts the first admission only;
#   with `report.cached_tokens` it would seem to *rise* with sixteen seats.
#
# And what it does not show:
#
# - One kind of traffic, one pool, one price list. With a pool that holds all prefixes, or at a load without a queue, all orders are the same (try `rate=1`).
# - "Within the spread of the seeds" is a rough test with three seeds. It says which differences not to believe, not which to believe.
# - Nobody in this traffic shares nothing; section 3 is about those who do.

# %% tags=["nbval-check-output"]
print("requests/s   found: first come  longest prefix   TTFT median: first come  longest prefix")
for rate in (1, 2, 4, 8):
    calm = families.families(rate=rate)
    options = dict(prefix_cache="radix", blocks=100, batching="continuous:8")
    pair = [lab.run(calm, lab.Priced(), ordering=order, **options) for order in ("fcfs", "longest-prefix")]
    print(f"{rate:10d} {families.found(pair[0]):18.0%} {families.found(pair[1]):15.0%}", end="")
    print(f"{pair[0].ttft_s.p50:24.2f} s {pair[1].ttft_s.p50:13.2f} s")

# %% [markdown]
# ## 5. Why an answer can change in a batch
#
# Orders, caches and batches must not change the answers. We have printed `same tokens: yes` many times. What may we really promise? Two properties, and they are not the same.
#
# **Neighbour independence.** Keep every shape, every length and every block, and change only *what the neighbours say*. A row must not change by a single bit. If it does, somebody reads
# somebody else's keys: a bug, however small the difference.
#
# **Solo against batched.** One row alone is a product of a vector and a matrix, eight rows are a product of two matrices. Another routine adds the same numbers in another order, and
# floating-point sums depend on it. A row *may* change, by rounding errors.

# %%
lab.predict(
    "08.p5",
    "The logits of one prompt's next token, about 49,000 of them: how many differ by any bit when the "
    "*contents* of three neighbours change?",
    options=["none", "some, by less than 0.001", "most, by less than 0.001", "most, by more"],
)

# %% tags=["nbval-ignore-output"]
texts = ["What is rain?", "Tell me a joke.", "Name three colours of the rainbow.", "Why is the sky blue?"]
asked, *neighbours = [model.encode_chat(text) for text in texts]
contents = invariance.other_neighbours(model, asked, neighbours)
print(f"other neighbours, same shapes: largest difference {contents.largest:.1e},", end=" ")
print(f"bit for bit equal: {contents.equal}")
for count in (1, 3):
    alone = invariance.solo_or_batched(model, asked, neighbours[:count])
    print(f"alone, or beside {count}: largest difference {alone.largest:.1e}, bit for bit equal:", end=" ")
    print(f"{alone.equal}, same choice: {alone.same_choice}")

# %% tags=["nbval-ignore-output"]
said = "none" if contents.equal else "some, by less than 0.001" if contents.largest < 1e-3 else "most, by more"
lab.reveal("08.p5", said)

# %% [markdown]
# When does a rounding error change a *token*? Greedy decoding takes the largest logit. It flips only when the two largest are closer together than the error. Their difference is
# called the **margin**, and every report has it:

# %% tags=["nbval-ignore-output"]
margins = sorted(margin for times in measured["first come"].times.values() for margin in times.margins)
print(f"{len(margins)} tokens: smallest margin {margins[0]:.3f}, median {margins[len(margins) // 2]:.2f}")
print(f"the difference above was {alone.largest:.1e}; the lab's tolerance is {LOGIT_TOLERANCE:g}")
print(f"tokens that rounding could flip here: {sum(margin < LOGIT_TOLERANCE for margin in margins)}")

# %% [markdown]
# So a comparison of two runs needs three verdicts. **yes**: all tokens equal. **tie**: the first difference is where the margin is below a *measured* tolerance. **no**: anything else, a bug.
#
# - The tolerance is a named constant, ten times the largest difference measured between kernels and shapes on this model. A tolerance chosen by feel hides real errors.
# - After the first difference, everything differs: the model answers another beginning. So only the first one counts.
# - What this does not show: that other machines agree in bits, or that other models have such margins. With 16-bit numbers rounding errors are larger by orders of magnitude, ties are common, and
#   people notice that temperature 0 is "not deterministic". The cause is usually the batch: other neighbours, other shapes.

# %% [markdown]
# ## Exercises
#
# ### 08.1 Longest prefix first, with a limit (fill in)
# `waiting` is a list; each entry has `id`, `arrival` and `cached` (tokens). Return all ids, the next one first:
# those who have waited for at least `limit` seconds, oldest first; then the others, most cached tokens first. Ties: earlier arrival, then smaller id.

# %%
def aged_order(waiting, now, limit):
    """Ids in the order in which they should be served."""
    ### BEGIN SOLUTION
    old = [request for request in waiting if now - request.arrival >= limit]
    young = [request for request in waiting if now - request.arrival < limit]
    old.sort(key=lambda request: (request.arrival, request.id))
    young.sort(key=lambda request: (-request.cached, request.arrival, request.id))
    return [request.id for request in old + young]
    ### END SOLUTION

lab.check("08.1", aged_order)

# %% tags=["nbval-check-output"]
with lab.course.when_done("08.1"):
    for limit in (0.3, 1.0, 100.0):
        mine = OrderRule(lambda waiting, now: aged_order(waiting, now, limit))
        mine = lab.run(stream, prices, ordering=mine, **shared)
        print(f"limit {limit:5.1f} s: the stranger waits {families.wait_of(mine, stranger):.2f} s,", end=" ")
        print(f"TTFT median {mine.ttft_s.p50:.2f} s")

# %% [markdown]
# ### 08.2 Yes, tie or no (fill in)
# Compare two answers, token by token. `margins[i]` is the reference's margin at its token `i`.

# %%
def verdict(reference, other, margins, tolerance):
    """"yes", "tie" or "no"; only the first difference counts. An answer that ends early is a "no"."""
    ### BEGIN SOLUTION
    for place, (ours, theirs) in enumerate(zip(reference, other)):
        if ours != theirs:
            return "tie" if margins[place] < tolerance else "no"
    return "yes" if len(reference) == len(other) else "no"
    ### END SOLUTION

lab.check("08.2", verdict)

# %% tags=["nbval-ignore-output"]
with lab.course.when_done("08.2"):
    left, right = (report.times for report in measured.reports.values())
    said = [verdict(left[i].output, right[i].output, left[i].margins, LOGIT_TOLERANCE) for i in left]
    print("your verdicts on section 1:", said)

# %% [markdown]
# ### 08.3 An order that is fair enough (explore)
# `with_order("k-lpm:4")` runs the ten families with four seats. `families.found(report)` is the share of the prompt tokens that came from the cache, `longest_wait(report)` the longest time to a first token.
# **Find an order with which at least 70 % is found and nobody waits longer than 9.3 s.** Any spec will do: `k-lpm:…`, `aged:longest-prefix:…s`, `hrrn`, …

# %% tags=["nbval-check-output"]
for order in ("fcfs", "longest-prefix", "hrrn", "aged:longest-prefix:4s", "k-lpm:2"):
    report = with_order(order)
    print(f"{order:24} found {families.found(report):.1%}, longest wait {longest_wait(report):5.2f} s")

# %%
### BEGIN SOLUTION
### STUB: fair = ...  # your answer: the spec of an order
fair = "k-lpm:8"
### END SOLUTION
lab.check("08.3", fair)

# %% [markdown]
# ### 08.4 Only the beginning is found (break it)
# This engine computes prompts in chunks of 64 tokens, and has a prefix cache that saves less than it should.

# %% tags=["nbval-check-output"]
prompts = long_family()
healthy, suspect = one_by_one(prompts), one_by_one(prompts, broken_memory.BUGS["08.4"])
for name, report in {"healthy": healthy, "suspect": suspect}.items():
    print(f"{name}: {report.computed_tokens} tokens computed,", end=" ")
    print(f"{report.cached_tokens} from the cache, {report.duration_s:.2f} s")

# %% tags=["nbval-ignore-output"]
plots_memory.first_tokens({"healthy": healthy, "suspect": suspect})

# %% [markdown]
# Write the rule. Requests run one at a time and nothing is ever evicted. So when a request is admitted, the cache must have what it has in common with *any* prompt that has finished: in whole blocks, and at most
# all but its last token. `common(a, b)` counts the tokens two prompts have in common at their beginning; `prompts[id]` is a prompt.
#
# Walk over `trace.events()`. Kinds: "admitted" (`value`: tokens from the cache) and "finished". Return the requests that got less.

# %%
def missed(trace, prompts, block_size):
    """Requests that took less from the cache than it had for them."""
    ### BEGIN SOLUTION
    found, done = [], []
    for event in trace.events():
        if event.kind == "admitted":
            prompt = prompts[event.request]
            best = max((common(prompt, prompts[other]) for other in done), default=0)
            if event.value < min(best, len(prompt) - 1) // block_size * block_size:
                found.append(event.request)
        elif event.kind == "finished":
            done.append(event.request)
    return found
    ### END SOLUTION

lab.check("08.4", missed)

# %% tags=["nbval-check-output"]
with lab.course.when_done("08.4"):
    print("healthy:", missed(healthy.trace, prompts, 16))
    print("suspect:", missed(suspect.trace, prompts, 16))
    print("found by the suspect:", [event.value for event in suspect.trace.events() if event.kind == "admitted"])

# %% [markdown]
# <details><summary>The bug, when you have found the requests</summary>
#
# It cuts the prompt into chunks first and asks the cache for the first chunk only. Whatever is longer than a chunk is computed again.
# An order that compares such matches is blind in the same way: all long prefixes look equally long.
# </details>

# %% [markdown]
# ## In real engines
#
# | engine | order and cache |
# |---|---|
# | SGLang | `--schedule-policy`: `fcfs`, `lpm` (longest prefix match), `dfs-weight` and others; with a long queue `lpm` falls back to `fcfs`, because matching everybody takes time |
# | vLLM | `--scheduling-policy`: `fcfs` or `priority`; the prefix cache helps whoever comes, but does not choose |
# | TensorRT-LLM | in the 1.4 previews `SchedulerConfig`: `context_scheduling_policy` is `fcfs` or `shortest_uncached_first`, and `context_starvation_iterations` bounds the wait |
# | Dynamo, and other routers | choose among *engines* by overlap and load: the same trade-off one level up |
#
# ## Summary
#
# - For a fixed set of requests, depth first is optimal, and longest prefix first is such an order. When requests keep coming it starves whoever shares nothing.
# - Medians do not show starvation. Look at the worst wait, and at those who miss the cache.
# - Ageing, k-LPM and the response ratio bound the wait; each costs the others a little.
# - In our experiment more seats cost hits and are still worth it; with an order that shares, both together gain most, because what is shared is held once.
# - A row must not depend on what its neighbours say, to the bit. It may depend on the *shape* of the batch, within a measured tolerance; then a near tie may flip.
#
# Next: notebook 09 orders by deadlines and lengths.
#
# ## Sources
#
# - Zheng et al., *SGLang*, NeurIPS 2024, [arXiv 2312.07104](https://arxiv.org/abs/2312.07104): theorem 3.1, longest shared prefix first.
# - Dexter et al., k-LPM, NeurIPS 2025, [arXiv 2502.04677](https://arxiv.org/abs/2502.04677): the oldest every k-th time; deciding feasibility with prefix reuse is NP-hard.
# - Starvation in production: [sglang issue 31954](https://github.com/sgl-project/sglang/issues/31954). Ageing: [xLLM PR 2164](https://github.com/xLLM-AI/xllm/pull/2164).
# - Exercise 08.4: [dynamo issue 13188](https://github.com/ai-dynamo/dynamo/issues/13188), [PR 13312](https://github.com/ai-dynamo/dynamo/pull/13312): a simulated scheduler that chunked before it matched.
# - Tolerances: [ferrox PR 306](https://github.com/antonellof/ferrox/pull/306), a bound of 1e-3 where the true difference is 3e-8;
#   [sglang PR 32442](https://github.com/sgl-project/sglang/pull/32442), a test that wanted equal bits from different batch shapes.
# - TensorRT-LLM: [SchedulerConfig](https://nvidia.github.io/TensorRT-LLM/1.4.0rc4/llm-api/reference/SchedulerConfig.html).
# - Policies of SGLang: `schedule_policy.py` in [sgl-project/sglang](https://github.com/sgl-project/sglang).
