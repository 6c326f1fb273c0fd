# %% [markdown]
# # Chunked prefill
#
# **Question.** Eight people are reading their answers, a word at a time. Then somebody pastes a report of many pages.
# Why do all eight answers stand still, and what does it cost to prevent that?
#
# A prompt is computed in one step, and a step is as long as what is in it.
# *Chunked prefill* cuts the prompt into pieces and lets every step do both: a token for each reader, and a piece of the
# prompt. Sarathi-Serve (OSDI 2024) calls the rule *stall-free scheduling*.
#
# You will cause a stall, remove it, find the bound that the rule promises, and see what a popular sentence about chunked
# prefill ("it reduces the attention work") gets wrong.
#
# About 50 minutes. Notebook [04](04_continuous_batching.ipynb) comes first.

# %% tags=["nbval-ignore-output"]
import lab
from lab.cluster.prefill import triangle
from lab.course import broken_scheduling, plots_scheduling, quick
from lab.course.chunk_work import chunk_table, chunks_of
from lab.course.dealing import deal_all, longest_pause
from lab.course.exercises.nb07 import aligned_workload, gap_and_speed, spread, sweep_workload
from lab.course.mixed_steps import piggyback
from lab.course.stalls import largest_chunk, late_tokens, longest_gap, numbered, soon, stall_workload
from lab.scheduler import Scheduler
from lab.workload import fixed_workload

model = lab.load_model()
prices = lab.Priced(step=0.040, token=0.002)  # close to the reference machine: 40 ms a step, 2 ms a token

# %% [markdown]
# ## 1. Live: press "Long prompt"
#
# Press **Start**, wait until a few answers are on their way, then press **Long prompt** (512 tokens of text).
# Watch the light-blue lines: in the first run they stop while the long prompt is computed; press it again if you missed it.
# The second run gets the same prompts at the same times, in chunks.

# %% tags=["nbval-ignore-output"]
work = lab.chat_workload(requests=24, rate=1.5, seed=1)
runs = {
    "whole prompts": dict(batching="continuous:8", chunking="whole"),
    "budget of 64": dict(batching="continuous:8", chunking="budget:64"),
}
session = lab.live.Session(work, model, runs, name="07", long_prompt_tokens=512)
session.dashboard()

# %% [markdown]
# Things to look for:
#
# - Whole prompts: one long orange bar, and above and below it nothing moves.
# - Budget: the orange bar is *longer*, and the blue lines next to it go on, a little slower.
#
# If an error ended the run, the next cell raises it; otherwise it just stops the engine.

# %% tags=["nbval-ignore-output"]
session.stop()

# %% [markdown]
# ## 2. One stall, looked at closely
#
# A fixed trace on the **virtual clock**, the same on every computer: three readers begin at 0 s, and a prompt of 900 tokens
# arrives at 1 s. A step costs 40 ms plus 2 ms per token.

# %%
lab.predict(
    "07.p1",
    "Whole prompts. What is the longest gap between two tokens that a reader sees?",
    unit="s",
)

# %% tags=["nbval-check-output"]
stall = stall_workload(long=900, readers=3, output=60, arrival=1.0)
whole = lab.run(stall, prices, batching="continuous:8", chunking="whole")
chunked = lab.run(stall, prices, batching="continuous:8", chunking="budget:64")
for name, report in {"whole prompts": whole, "budget of 64": chunked}.items():
    reader, newcomer = report.times[0], report.times[3]
    print(f"{name:14} longest gap of a reader {max(reader.gaps):.3f} s, its last token at {reader.tokens[-1]:.2f} s;", end=" ")
    print(f"TTFT of the long prompt {newcomer.ttft:.2f} s")

# %%
lab.reveal("07.p1", max(whole.times[0].gaps), "The whole prompt's step, and then the reader's own.", unit="s")

# %% tags=["nbval-ignore-output"]
plots_scheduling.staircase({"whole prompts": whole, "budget of 64": chunked})

# %% [markdown]
# Look at where both lines **end**. Chunking did not give the readers more: their last tokens come at nearly the same time.
# It spread one long pause over many slightly longer steps.
# And it is not free for the newcomer, whose first token comes later.
# Chunked prefill is a choice about *who waits and when*; it makes nothing faster by itself.

# %% [markdown]
# ## 3. The stall-free rule
#
# > 1. Every running request that decodes gets its token.
# > 2. What is left of the budget goes to prompts that have begun, then to new ones.
#
# That is all. The budget is a number of tokens per step:

# %% tags=["nbval-ignore-output"]
plots_scheduling.step_fill(chunked, "Decodes first, chunks fill the rest (budget 64)", budget=64)

# %% [markdown]
# In the engine the rule is the order of three calls. Read the two branches of `if ... prompts_first`:
# above is the old way (a step with prompts has no decodes), below is the stall-free one.

# %%
lab.course.show(Scheduler.schedule)

# %% [markdown]
# ### What the rule promises
#
# A decoding request is in *every* step, and no step has more tokens than the budget. So the gap between two of its tokens
# is at most **the time of one full step**, whatever arrives:
#
# $$\text{gap} \;\le\; 40\,\text{ms} + 2\,\text{ms} \times \text{budget}$$
#
# Without chunks there is no such bound: the gap is as long as all the prompts that came in between.

# %%
lab.predict(
    "07.p2",
    "Budget 64, and eight prompts of 2,000 tokens arrive at once. What is the longest gap now?",
    unit="ms",
)

# %% tags=["nbval-check-output"]
print("long prompts   whole: longest gap     budget 64: longest gap   bound")
for long in (1, 2, 4, 8):
    crowd = fixed_workload([20] * 3 + [2000] * long, [60] * 3 + [4] * long, [0.0] * 3 + [1.0] * long)
    gaps = [
        longest_gap(lab.run(crowd, prices, batching="continuous:16", chunking=spec, blocks=2000))
        for spec in ("whole", "budget:64")
    ]
    print(f"{long:12} {gaps[0]:18.2f} s {1000 * gaps[1]:22.0f} ms {1000 * (0.040 + 0.002 * 64):8.0f} ms")

# %%
lab.reveal("07.p2", 1000 * gaps[1], "One full step. What waits in the queue does not matter.", unit="ms")

# %% [markdown]
# ### Where the promise ends
#
# - **Preemption.** A request that is thrown out for lack of memory waits like a new one (notebook 05).
# - **More running requests than budget.** Then some get no token in a step.
# - **Context.** Our price has no term for it. On a real machine a full step gets longer with the keys and values it reads,
#   so the bound is one full step *at its context*.
# - The bound is on one gap. It says nothing about the first token, which comes *later*.

# %% [markdown]
# ## 4. Which budget? Throughput against the longest gap
#
# Mixed traffic: short prompts and, one in four, long ones (300 to 1,000 tokens), two requests per second.

# %%
lab.predict(
    "07.p3",
    "A budget of 16 instead of 2,048 tokens: what share of the output tokens per second is left?",
    unit="%",
)

# %% tags=["nbval-check-output"]
traffic, budgets = sweep_workload(), (16, 32, 64, 128, 256, 512, 1024, 2048)
sweep = {
    budget: lab.run(traffic, prices, batching="continuous:8", chunking=lab.TokenBudget(budget), blocks=1000)
    for budget in budgets
}
bound = {budget: 0.040 + 0.002 * budget for budget in budgets}
print("budget   tokens/s   longest gap    bound   TTFT p95   steps")
for budget, report in sweep.items():
    print(f"{budget:6} {report.output_tokens_per_s:10.1f} {longest_gap(report):11.2f} s {bound[budget]:6.2f} s", end="")
    print(f" {report.ttft_s.p95:8.1f} s {report.steps:7}")

# %%
lab.reveal("07.p3", 100 * sweep[16].output_tokens_per_s / sweep[2048].output_tokens_per_s, unit="%")

# %% tags=["nbval-ignore-output"]
plots_scheduling.budget_curve(sweep, bound)

# %% [markdown]
# - **Too small**: the fixed cost of a step (here 40 ms: fetching the weights) is paid for a handful of tokens. Throughput
#   falls, the queue grows, and everybody's *first* token is late.
# - **Too large**: nothing more to gain, and gaps grow in proportion.
# - The knee lies where a step's tokens cost several times its fixed part: 128 tokens are 256 ms here, against 40 ms.
#
# Sarathi-Serve uses 512 tokens where the limit on gaps is strict and 2,048 where it is relaxed, on GPUs whose steps are
# flat up to hundreds of tokens. Our knee is lower because our steps are.
# The paper also finds that a budget one above a tile of the matrix kernel is a bad idea: 257 tokens took 32 % longer than 256.

# %% [markdown]
# ## 5. Equal tokens are not equal work
#
# You can read that chunked prefill *reduces the attention work*, or makes it linear. Let us count.
# Token number $p$ of a prompt looks at $p$ keys: itself and all before it. A prompt of $N$ tokens has
# $T(N) = N(N+1)/2$ such pairs, per head and layer. A chunk from $p$ to $p+c$ has $T(p+c) - T(p)$.

# %%
lab.predict(
    "07.p4",
    "A prompt of 20,000 tokens in four chunks of 5,000. What share of the attention work has the last chunk?",
    options=["25 %", "33 %", "44 %", "75 %"],
)

# %% tags=["nbval-check-output"]
print("four chunks:", *(f"{chunk.pairs:,}" for chunk in chunks_of(20_000, 5_000)))
print(f"their sum:   {sum(chunk.pairs for chunk in chunks_of(20_000, 5_000)):,}")
print(f"in one go:   {triangle(20_000):,}")
print("\nchunk size   chunks         pairs   costliest chunk   last chunk   tokens read again")
for row in chunk_table(20_000, (512, 2_000, 5_000, 10_000, 20_000)):
    print(f"{row.size:10,} {row.count:8} {row.pairs:13,} {row.most:17.1%} {row.last:12.1%} {row.reread:19,}")

# %%
last = chunk_table(20_000, (5_000,))[0].last
lab.reveal("07.p4", f"{100 * last:.0f} %", f"{last:.1%}; the first chunk has {triangle(5_000) / triangle(20_000):.1%}.")

# %% tags=["nbval-ignore-output"]
plots_scheduling.chunk_pairs(20_000, 5_000)

# %% [markdown]
# Three statements, set right:
#
# - "Chunking reduces attention work": **no**. The pairs are the same, to the last one. (A *sliding window* does reduce them;
#   that is another model, not another schedule.)
# - "All chunks cost the same": **no**. With equal tokens the last chunk does the most. Exercise 07.2 cuts chunks of equal work.
# - "Chunking is free": **no**. Each chunk reads the keys and values of everything before it again (last column), and pays the
#   fixed cost of a step. On Sarathi's hardware chunks of 512 made the prefill of prompts of 2,000 to 8,000 tokens 12 to 19 %
#   longer; chunks of 2,048 cost between nothing and 2 %.
#
# ### Measured
# The same on the real model: one long prompt in four chunks of equal size (the second of two runs; the first warms up).

# %% tags=["nbval-ignore-output"]
size = quick(384, 192)
alone = fixed_workload([numbered(4 * size)], [1])
one = [lab.run(alone, model, batching="continuous:1", chunking=f"budget:{size}", clock="virtual") for _ in range(2)][-1]
plots_scheduling.chunk_seconds(one)

# %% tags=["nbval-ignore-output"]
seconds = [step.end - step.start for step in one.trace]
pairs = [chunk.pairs for chunk in chunks_of(4 * size, size)]
flops = [model.step_flops(size, seen, num_sampled=0) for seen in pairs]
print(f"last chunk / first chunk: {pairs[-1] / pairs[0]:.1f}× the query-key pairs, {flops[-1] / flops[0]:.2f}× all arithmetic,")
print(f"{seconds[-1] / seconds[0]:.2f}× the time (measured)")

# %% [markdown]
# At this length most of the arithmetic is in the matrix products, which are the same for every chunk; the longer the prompt,
# the more attention shows. Notebook 09 has the share for several models.

# %% [markdown]
# ## 6. Riding along is nearly free
#
# Why does a step with a chunk *and* decodes cost hardly more than a step with the chunk?
# The chunk makes the step busy with arithmetic; the decodes bring few tokens and use weights that are fetched anyway.
#
# Published measurements (Sarathi-Serve's released data, Yi-34B on two A100):
#
# | step | tokens | time |
# |---|---|---|
# | 1,024 prompt tokens | 1,024 | 217.2 ms |
# | 1,021 prompt tokens + 3 decodes | 1,024 | 217.6 ms |
# | 4 decodes | 4 | 68.1 ms |
#
# Three tokens for three readers, for 0.4 ms instead of a step of their own. Here and now:

# %%
lab.predict(
    "07.p5",
    "On this computer: 122 prompt tokens and 6 decodes in one step, instead of in two steps. How much time is saved?",
    unit="%",
)

# %% tags=["nbval-ignore-output"]
steps = piggyback(model, chunk=128, decodes=6, repeats=quick(7, 3))
for step in steps:
    print(f"{step.name:30} {step.tokens:4} tokens {step.step_ms:7.1f} ms")
chunk_ms, decode_ms, mixed_ms = (step.step_ms for step in steps)
apart = chunk_ms * 122 / 128 + decode_ms
print(f"apart: about {apart:.0f} ms; together: {mixed_ms:.0f} ms; saved {1 - mixed_ms / apart:.0%}")

# %% tags=["nbval-ignore-output"]
lab.reveal("07.p5", 100 * (1 - mixed_ms / apart), unit="%")

# %% [markdown]
# On a small computer the gain is smaller than on a GPU: 128 tokens are already more than its arithmetic does for free
# (notebook 01, where the curve bends). The tokens cost what tokens cost; what is saved is the step.

# %% [markdown]
# ## 7. Measured: what the readers feel
#
# The stall of section 2 with the real model: three readers, and, when they have some eight tokens each, a long prompt.

# %% tags=["nbval-ignore-output"]
real = stall_workload(long=quick(600, 250), readers=3, output=quick(40, 20), arrival=soon(model), ids=True)
policies = {name: dict(batching="continuous:8", chunking=spec) for name, spec in (("whole", "whole"), ("budget of 64", "budget:64"))}
measured = lab.compare(real, model, policies, clock="virtual")  # measured seconds; the waiting in between is skipped
for name, report in measured.reports.items():
    gaps, newcomer = report.times[0].gaps, report.times[3]
    print(f"{name:13} ITL median {1000 * report.itl_s.p50:5.0f} ms, longest {1000 * max(gaps):6.0f} ms;", end=" ")
    print(f"TTFT of the long prompt {newcomer.ttft:.2f} s; all done after {report.duration_s:.2f} s")
print("same tokens:", measured.same["budget of 64"])

# %% tags=["nbval-ignore-output"]
plots_scheduling.staircase(measured.reports)

# %% tags=["nbval-ignore-output"]
a, b = measured["whole"], measured["budget of 64"]
print(f"The longest gap is {max(a.times[0].gaps) / max(b.times[0].gaps):.1f} times shorter with a budget of 64.")
print(f"The long prompt waits {b.times[3].ttft / a.times[3].ttft:.2f} times as long for its first token.")
print(f"Everything together takes {b.duration_s / a.duration_s:.2f} times as long.")

# %% [markdown]
# ### What these numbers show, and what they do not
#
# - They show the trade: smoother for those who read, later for the one who comes. Tokens are the same, to the last one.
# - They do not show that chunking raises throughput. It *allows* a larger batch under a limit on gaps, and that is where
#   the large factors of the papers come from: **capacity under a limit** (Sarathi: the most requests per second with the 99th
#   percentile of the gap below it), not tokens per second.
# - A median of gaps does not see a stall at all. Look at the longest, or at a high percentile.
# - One long prompt, one run. Run the cell again before you believe a second digit.

# %% [markdown]
# ## 8. A budget that adapts
#
# A fixed budget is right for the worst moment. But a reader who is *ahead*, with more tokens than could be read by now, would
# not notice a longer step. **SlackBudget** (the rule of Niyama, arXiv 2503.22562) gives each token a due time, as a video
# player has a buffer:
#
# > due = first token + (time between tokens that a reader wants) × (tokens so far). \
# > The largest chunk with which the step ends, with a margin, before the tightest due time.

# %% tags=["nbval-check-output"]
wanted = 0.150  # a reader takes a token every 150 ms
candidates = ("whole", "budget:32", "budget:64", "budget:512", f"slack:{wanted}")
calm = sweep_workload().at_rate(1.0)
print("chunking      late tokens   longest gap   largest chunk   TTFT median      p95   tokens/s")
for spec in candidates:
    report = lab.run(calm, prices, batching="continuous:8", chunking=spec, predict="model", blocks=1000)
    print(f"{spec:12} {late_tokens(report, wanted):12.1%} {longest_gap(report):11.2f} s {largest_chunk(report):15}", end="")
    print(f" {report.ttft_s.p50:11.2f} s {report.ttft_s.p95:6.2f} s {report.output_tokens_per_s:10.1f}")

# %% [markdown]
# Judge it by the first column. A gap that a buffered reader does not notice is allowed, so its *longest gap* is long; its
# tokens come in time, and its prompts are computed in far larger chunks than a budget that is as punctual could allow.
#
# What it needs is a prediction of step times (here the price list itself). With a wrong one, tokens come late; and whoever
# shows tokens the moment they arrive, without a buffer, sees the gap. It is a rule for a *promise about a schedule*.

# %% [markdown]
# ## Exercises
#
# ### 07.1 Share out a budget without stalling anybody (fill in)
# You get the budget of a step, and for each running request how many tokens it has left to compute before its next token
# comes: 1 for whoever is decoding, more for a prompt. Return how many of them are computed now, in the same order.

# %%
def share_out(budget, remaining):
    """Tokens of each request in this step; their sum is at most the budget."""
    ### BEGIN SOLUTION
    counts = [0] * len(remaining)
    for decodes in (True, False):
        for place, tokens in enumerate(remaining):
            if (tokens == 1) == decodes:
                counts[place] = min(tokens, budget)
                budget -= counts[place]
    return counts
    ### END SOLUTION

lab.check("07.1", share_out)

# %% tags=["nbval-check-output"]
with lab.course.when_done("07.1"):
    prompts, outputs = [20, 20, 500, 20, 300], [40, 40, 8, 40, 8]
    mine = deal_all(share_out, 64, prompts, outputs)
    print(f"your rule: {len(mine)} steps, at most {longest_pause(mine, prompts)} step from one token to the next")
    print("first steps:", mine[:3])

# %% [markdown]
# ### 07.2 Chunks of equal work (fill in)
# Cut a prompt into `parts` chunks that have (within rounding) the same number of query-key pairs. Return their lengths.
# Engines do this where chunks run through a pipeline of devices and the slowest one holds up the others.

# %%
def equal_work_chunks(prompt, parts):
    """Lengths of the chunks, first to last; their sum is `prompt`."""
    ### BEGIN SOLUTION
    cuts = [round(prompt * (part / parts) ** 0.5) for part in range(parts + 1)]
    return [after - before for before, after in zip(cuts, cuts[1:])]
    ### END SOLUTION

lab.check("07.2", equal_work_chunks)

# %% tags=["nbval-check-output"]
with lab.course.when_done("07.2"):
    print("equal tokens: costliest / cheapest chunk =", f"{spread([5_000] * 4):.2f}")
    print("your chunks: ", equal_work_chunks(20_000, 4), "→", f"{spread(equal_work_chunks(20_000, 4)):.2f}")

# %% [markdown]
# ### 07.3 A budget for a limit (explore)
# On the traffic of section 4, **no gap may be longer than 350 ms**, and throughput must stay within 3 % of what a budget of
# 2,048 reaches. `gap_and_speed(budget)` gives both. Which budget do you choose?

# %% tags=["nbval-check-output"]
for budget in (32, 512):
    print(budget, "→ longest gap {:.3f} s, {:.1f} tokens/s".format(*gap_and_speed(budget)))

# %%
### BEGIN SOLUTION
### STUB: my_budget = ...  # your answer: tokens per step
my_budget = 150
### END SOLUTION
lab.check("07.3", my_budget)

# %% [markdown]
# ### 07.4 A prompt that ends in silence (break it)
# The engine below chunks prompts with a budget of 64. Its answers are right. A few first tokens are a little late, and
# there are a few more steps than there should be. Which ones, and why only those?

# %% tags=["nbval-check-output"]
options = dict(batching="continuous:8", chunking=lab.TokenBudget(64))
healthy = lab.run(aligned_workload(), prices, **options)
suspect = broken_scheduling.run(aligned_workload(), prices, "07.4", **options)
for name, report in {"healthy": healthy, "suspect": suspect}.items():
    print(f"{name}: {report.steps} steps, {report.computed_tokens} tokens computed, {report.recomputed_tokens} again,", end=" ")
    print(f"TTFT mean {report.ttft_s.mean:.3f} s, {report.output_tokens} output tokens")

# %% tags=["nbval-ignore-output"]
plots_scheduling.step_fill(suspect, "The suspect: tokens in each step", budget=64, most=48)

# %% [markdown]
# The rule that must hold: **when a step computes the last token that a request has, it also gives the next one.**
#
# A row of a step computes tokens `row.start` to `row.start + row.num_tokens`, and `row.sampled` says whether a token came out.
# `trace.requests[id].num_prompt` is the prompt's length; every sampled token makes a request one token longer.
# Return the steps that break the rule.

# %%
def silent_ends(trace):
    """Indices of steps that computed all of a request's tokens and gave none."""
    ### BEGIN SOLUTION
    known = {request: info.num_prompt for request, info in trace.requests.items()}
    found = []
    for step in trace:
        for row in step.rows:
            if row.start + row.num_tokens == known[row.request] and not row.sampled:
                found.append(step.index)
            known[row.request] += row.sampled
    return found
    ### END SOLUTION

lab.check("07.4", silent_ends)

# %% tags=["nbval-check-output"]
with lab.course.when_done("07.4"):
    print("healthy:", silent_ends(healthy.trace))
    for index in silent_ends(suspect.trace):
        step = suspect.trace[index]
        print(f"suspect, step {index}: {step.computed} tokens in the step; the next step computes", end=" ")
        print(f"{suspect.trace[index + 1].recomputed} token again")

# %% [markdown]
# What do those steps have in common?
#
# <details><summary>When you have an idea</summary>
#
# They are exactly full: what the prompt had left was exactly what the budget had left. The engine asks whether the rest
# of the prompt is *smaller than* the budget where it should ask whether it is *at most* as large, takes an exact fit for a
# split, and comes back for a rest that is empty. The sources name an engine with that comparison.
# </details>

# %% [markdown]
# ## In real engines
#
# | engine | chunked prefill there |
# |---|---|
# | vLLM | on by default in V1, decodes first; the budget is `--max-num-batched-tokens`; `--no-enable-chunked-prefill` turns it off; `--long-prefill-token-threshold` caps the chunk of one long prompt |
# | SGLang | `--chunked-prefill-size` (−1: off); prefill batches go first and hold no decodes, unless `--enable-mixed-chunk` |
# | TensorRT-LLM | *chunked context*: `enable_chunked_prefill`; the budget is `max_num_tokens` |
# | Sarathi-Serve | the research engine of the rule: a fork of vLLM of its time, chunk sizes 512 and 2,048 in the paper |
# | FastDeploy | decodes first, prompts split within `max_num_batched_tokens` |
# | transformers | continuous batching with a token budget per step; schedulers `fifo` (decodes first) and `prefill_first` |
#
# Note SGLang: chunked, but by default *not* stall-free. Its scheduler runs a prefill batch whenever there is one; chunks then
# bound memory and the time of one step, not the pause of those who decode. "Has chunked prefill" does not say which.
# Dynamic chunk sizes, the idea of exercise 07.2, exist in SGLang and vLLM-Ascend for pipelines of devices.

# %% [markdown]
# ## Summary
#
# - A prompt that is computed whole stalls everybody for as long as it takes. Medians do not show it.
# - Stall-free rule: decodes first, chunks of prompts fill the rest of the budget. A gap is then at most one full step.
# - The budget trades throughput (fixed cost of a step) against gaps. There is a knee; it depends on the machine.
# - Chunks of equal tokens are not equal work. The attention work is the same as without chunks; keys and values are read again.
# - The newcomer pays: its first token comes later.
#
# Next: [09 Latency-aware scheduling](09_latency_aware.ipynb), who goes first, and where.
#
# ## Sources
#
# - Agrawal et al., *Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve*, OSDI 2024,
#   [arXiv 2403.02310](https://arxiv.org/abs/2403.02310); step times and chunk overheads from the data released with
#   [microsoft/sarathi-serve](https://github.com/microsoft/sarathi-serve). The 257-token figure is quoted from notes on the paper.
# - The triangular table: Fregly, *AI Systems Performance Engineering*, O'Reilly 2025, chapter 16; recomputed here.
# - *Niyama* (QoServe, ASPLOS 2026), [arXiv 2503.22562](https://arxiv.org/abs/2503.22562).
# - Exercise 07.4: `if len(request_tokens) < token_budget` in
#   [transformers' continuous batching at commit 028fa53](https://github.com/huggingface/transformers/blob/028fa5390dcc07e2b02e924d0402e0a3581ea4e6/src/transformers/generation/continuous_batching/scheduler.py).
#   There the empty rest is scheduled as it is; ours computes the last token again.
# - Chunks of equal time: [vLLM-Ascend PR 7896](https://github.com/vllm-project/vllm-ascend/pull/7896).
# - SGLang's order: `get_next_batch_to_run` in
#   [its scheduler](https://github.com/sgl-project/sglang/blob/main/python/sglang/srt/managers/scheduler.py) ("Run prefill first if possible").
# - Flags: [vLLM](https://docs.vllm.ai/en/stable/configuration/optimization/), [SGLang](https://docs.sglang.io/),
#   [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/features/long-sequence.html),
#   [FastDeploy](https://paddlepaddle.github.io/FastDeploy/features/chunked_prefill).
