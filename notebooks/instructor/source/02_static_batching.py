# %% [markdown]
# # Static batching
#
# **Question.** A step for eight costs little more than a step for one (notebook [01](01_one_request.ipynb)).
# So put eight requests into one batch and run them together. What does that cost, who pays, and how large should the
# batch be?
#
# *Static* batching is the obvious answer: wait until the batch is full, run it until its **last** answer is done, then take
# the next. It is what a server does that treats writing text like any other call with fixed sizes.
#
# You will count a batch by hand and let the engine check you, watch two batch sizes live, and measure them on the real
# model. Then you look at two ways in which waiting has no end, and at what sorting by length can do.
#
# About 45 minutes. Notebook [01](01_one_request.ipynb) comes first.

# %% tags=["nbval-ignore-output"]
import lab
from lab.batching.protocol import QueueView
from lab.batching.served import batches
from lab.course import broken_batching, plots, plots_batching, quick
from lab.course.exercises.nb02 import OUTPUTS, PROMPTS, counted, useless_share
from lab.course.traffic import mixed_workload
from lab.course.waiting import overtaken, worst_wait
from lab.workload import fixed_workload

model = lab.load_model()
prices = lab.Priced(step=0.040, token=0.002)  # virtual clock: 40 ms per step and 2 ms per token in it, padding included

# %% [markdown]
# ## 1. A batch is a rectangle
#
# Four requests. Their prompts have 3, 10, 6 and 10 tokens, their answers 8, 2, 5 and 3.
# A tensor has no ragged edge, so the batch becomes a rectangle:
#
# - in the first step every prompt is **padded** to the longest;
# - after that, every row computes one position per step until the longest answer is done. A row that has finished is
#   **carried** along: computed, and thrown away.
#
# An answer of *t* tokens takes *t* − 1 such steps, because the first token comes out of the prompt's step.

# %%
lab.predict(
    "02.p1",
    "Of all the positions in this rectangle, what share is useless: padding, or rows that have finished?",
    unit="%",
)

# %% [markdown]
# By hand: each row is as wide as the longest prompt, and then as long as the longest answer without its first token.

# %% tags=["nbval-check-output"]
prompts, outputs = [3, 10, 6, 10], [8, 2, 5, 3]
positions = len(prompts) * (max(prompts) + max(outputs) - 1)
useful = sum(prompts) + sum(outputs) - len(prompts)
print(f"{positions} positions, {useful} useful, {positions - useful} useless: {1 - useful / positions:.1%}")

# %% [markdown]
# And as the engine counts it, step by step:

# %% tags=["nbval-check-output"]
four = lab.run(fixed_workload(prompts, outputs), prices, batching="static:4")
for step in four.trace:
    print(f"step {step.index}: {step.computed:2d} useful, {step.padded:2d} useless, of these {step.carried} carried rows")
print(f"together {four.computed_tokens} useful and {four.padded_tokens} useless positions")

# %%
lab.reveal("02.p1", 100 * four.padded_tokens / (four.padded_tokens + four.computed_tokens), unit="%")

# %% tags=["nbval-ignore-output"]
plots_batching.rectangle(four)

# %% [markdown]
# Three things to see:
#
# - **One long prompt pads everybody**, one long answer carries everybody. Averages do not matter, the maximum does.
# - The user of request 1 asked for two tokens. They are ready after step 1, and are handed out when the batch ends.
# - Nobody may join, although from step 2 on there are rows that do nothing useful. That is the subject of notebook
#   [04](04_continuous_batching.ipynb).
#
# This is the whole rule. Read the first two `if`s: nobody joins a batch that runs, and nobody starts before the batch is
# full. The rest is for section 6.

# %%
lab.course.show(lab.Static.admit)

# %% [markdown]
# ## 2. Live
#
# Press **Start**. The same requests, first in batches of 4, then in batches of 16.
# Each line is a request, time runs to the right. Hatched means: computed and thrown away.
#
# Before you start: with which batch size will the first answers be there sooner?

# %% tags=["nbval-ignore-output"]
small, large = 4, quick(16, 8)
work = lab.chat_workload(requests=quick(16, 8), rate=quick(2.0, 4.0), seed=0, max_tokens=quick(None, 24))
runs = {
    f"static {small}": dict(batching=lab.Static(max_batch=small)),
    f"static {large}": dict(batching=lab.Static(max_batch=large)),
}
session = lab.live.Session(work, model, runs, name="02")
session.dashboard()

# %% [markdown]
# Things to look for:
#
# - The grey lines at the beginning: requests that wait for company while the engine does nothing at all.
# - The hatched area grows with the batch. Why? (Think of the longest of 4 answers, and of the longest of 16.)
# - With the larger batch everybody waits for the sixteenth. What does the engine do meanwhile?
#
# If an error ended the run, the next cell raises it; otherwise it just stops the engine.

# %% tags=["nbval-ignore-output"]
session.stop()

# %% [markdown]
# ## 3. Measured
#
# The same on the real model, without watching.

# %%
lab.predict(
    "02.p2",
    "16 chat requests, 2 per second. How many times longer is the median time to the first token with batches of 16 "
    "instead of 4?",
    unit="×",
)

# %% tags=["nbval-ignore-output"]
measured = lab.compare(work, model, runs)
print(measured.summary())

# %% tags=["nbval-ignore-output"]
less, more = measured[f"static {small}"], measured[f"static {large}"]
lab.reveal("02.p2", more.ttft_s.p50 / less.ttft_s.p50, unit="×")

# %% tags=["nbval-ignore-output"]
plots.timelines(measured)

# %% tags=["nbval-ignore-output"]
for name, report in measured.reports.items():
    share = report.padded_tokens / (report.padded_tokens + report.computed_tokens)
    print(f"{name}: {share:.0%} of the positions useless, {report.output_tokens_per_s:.1f} tokens/s,", end=" ")
    print(f"busy {report.utilisation:.0%} of the time, median wait for the start {report.queueing_s.p50:.1f} s")
print("same tokens:", measured.same[f"static {large}"])

# %% [markdown]
# ### What this shows, and what it does not
#
# - Both do the same useful work and give the same tokens. The larger batch computes more useless positions besides, and
#   everybody in it waits twice: for the last request to come, and for the longest of many answers.
# - It does **not** show that 4 is the right size. The run is short, and a queue that grows has no time to grow long. The next
#   section asks more people, at three rates.
# - The time to the first token is the time to the *last* one here: a static batch hands out its answers when it ends.
#   A server could stream them. Notebook [04](04_continuous_batching.ipynb) takes this apart.

# %% [markdown]
# ## 4. Batch size against waiting
#
# Four arrival rates, six batch sizes, 96 requests each, on the virtual clock.

# %%
lab.predict(
    "02.p3",
    "At 1 request per second, which batch size gives the shortest median time from question to answer?",
    options=["1", "2", "4", "8", "16", "32"],
)

# %% tags=["nbval-check-output"]
rates, sizes = (0.5, 1, 2), (1, 2, 4, 8, 16, 32)
many = lab.chat_workload(requests=96, seed=0)
sweep = {
    rate: {size: lab.run(many.at_rate(rate), prices, batching=lab.Static(size)) for size in sizes} for rate in rates
}
print("batch size      " + "".join(f"{size:8d}" for size in sizes))
for rate, reports in sweep.items():
    print(f"{rate:3.1f}/s to start  " + "".join(f"{reports[size].queueing_s.p50:6.1f} s" for size in sizes))
    print("      to the end" + "".join(f"{reports[size].e2e_s.p50:6.1f} s" for size in sizes))
    print("      busy      " + "".join(f"{reports[size].utilisation:7.0%} " for size in sizes))

# %%
all_best = {rate: min(sizes, key=lambda size: reports[size].e2e_s.p50) for rate, reports in sweep.items()}
lab.reveal("02.p3", str(all_best[1]), "By rate: " + ", ".join(f"{size} at {rate:g}/s" for rate, size in all_best.items()))

# %% tags=["nbval-ignore-output"]
plots_batching.size_curves(sweep)

# %% [markdown]
# Each curve falls, and rises again.
#
# - **Too small**: the engine is busy all the time and cannot keep up. The queue grows for as long as the traffic lasts.
# - **Too large**: the engine has time to spare, and people wait for company. At rate λ, a batch of *B* is full after
#   (*B* − 1)/λ seconds (exercise 02.2).
# - The best size *moves with the load*. A fixed number is right at one rate only. That is the weakness of static batching
#   that no choice of size repairs.
#
# The picture on the right shows the price in work: the longest of many is longer than the longest of few.

# %% [markdown]
# ### The same on an H100
#
# All 96 requests at once; the machine above beside Llama-3-8B on an H100 (*simulated*, notebook [11](11_two_clocks.ipynb)):

# %% tags=["nbval-check-output"]
h100 = lab.simulated("llama-3-8b", on="h100-sxm")
for size in (8, 32, 96):
    here, there = (lab.run(many.at_rate(1e9), machine, batching=lab.Static(size), blocks=4000) for machine in (prices, h100))
    useless = here.padded_tokens / (here.padded_tokens + here.computed_tokens)
    print(f"batches of {size:2d}: useless {useless:.0%}; {here.output_tokens_per_s:3.0f} tokens/s here,", end=" ")
    print(f"{there.output_tokens_per_s:4.0f} on the H100 (simulated)")

# %% [markdown]
# The same rectangles with the same useless positions. Here a position costs its 2 ms, needed or not, and larger batches soon gain
# little. There, most of a step is the fetching of weights, useless positions are cheap, and larger batches go on gaining.
# The waiting of section 5 is the same on any machine.

# %% [markdown]
# ## 5. Waiting without end
#
# A batch of 4, three requests at once. The fourth comes later. How long does the first wait?

# %% tags=["nbval-check-output"]
for name, later in {"a second": 1, "a minute": 60, "an hour": 3600, "a day": 86400}.items():
    late = lab.run(fixed_workload([10] * 4, [5] * 4, [0, 0, 0, later]), prices, batching="static:4")
    print(f"the fourth comes after {name:8}: the first waits {late.times[0].admitted - late.times[0].arrival:8.0f} s")

# %% [markdown]
# There is no bound. And if the fourth never comes?
# We can ask the policy itself, ten years later:

# %% tags=["nbval-check-output"]
ten_years = 10 * 365 * 86400.0
view = QueueView(now=ten_years, waiting=3, oldest_arrival=0.0, running=0, more_expected=True)
print(lab.Static(4).admit(view))

# %% [markdown]
# No slots, and no time at which to ask again: it will wait for ever.
# With static batching the waiting time of a request depends on *other people*, and has no limit of its own.
#
# Why did our runs above come to an end? Because they are finite, and the lab knows it: after the last arrival
# `more_expected` is false, and the rest starts as it is. **A real server never knows that.** So none of the servers at the
# end of this notebook works like this. They put a limit on the waiting time as well, and that makes it *dynamic*
# batching, notebook [03](03_dynamic_batching.ipynb).
#
# Static batching in its pure form is right where the list of requests *is* finite: a file of prompts, overnight.

# %% [markdown]
# ## 6. Sorting by length
#
# Useless work comes from unequal lengths. So batch requests of *similar* length: put each into a **bucket**, and start a
# batch when one bucket is full. In the lab that is `Static(8, bucket=64)`: buckets are 64 tokens wide.
#
# Only the prompt is known beforehand. Nobody knows how long an answer will be.

# %%
lab.predict(
    "02.p4",
    "96 requests with prompts of very different length, batches of 8. Of the useless positions, what share do "
    "buckets of 64 tokens remove?",
    unit="%",
)

# %% tags=["nbval-check-output"]
def bucketed(mixed):
    """The same requests without buckets and with buckets of four widths."""
    widths = {"none": None, "128": 128, "64": 64, "32": 32, "16": 16}
    return {name: lab.run(mixed, prices, batching=lab.Static(8, width), blocks=4000) for name, width in widths.items()}

offline = bucketed(mixed_workload(96, rate=None))
print("all there from the start:")
for name, report in offline.items():
    kinds = counted(report)
    print(f"  buckets {name:>4}: {kinds['prompt padding']:6d} padding,", end=" ")
    print(f"{kinds['finished rows']:5d} finished rows,", end=" ")
    print(f"{len(batches(report.trace)):2d} batches, done after {report.duration_s:.1f} s")

# %%
before, after = offline["none"].padded_tokens, offline["64"].padded_tokens
lab.reveal("02.p4", 100 * (1 - after / before), unit="%")

# %% [markdown]
# Buckets remove nearly all of the *padding*, and little of the *finished rows*.
# And there is a smallest useful width: with narrow buckets many batches are not full, and the run takes longer again.
#
# When everybody is there from the start, that is the whole story, and it is a good one. Now the same requests arrive one
# per second:

# %% tags=["nbval-check-output"]
online = bucketed(mixed_workload(96, rate=1.0))
print("one request per second:")
for name, report in online.items():
    print(f"  buckets {name:>4}: longest wait {worst_wait(report):5.1f} s,", end=" ")
    print(f"{overtaken(report):2d} of {report.requests} requests overtaken,", end=" ")
    print(f"end to end {report.e2e_s.p50:4.1f} s (median), {report.e2e_s.p95:4.1f} s (p95)")

# %% tags=["nbval-ignore-output"]
plots_batching.bucket_work(online)

# %% [markdown]
# The bill arrives as waiting:
#
# - **Order.** Whoever has a common length overtakes. First come is no longer first served.
# - **Waiting.** Whoever has an unusual length waits for his like, perhaps until the end of the traffic. With wide buckets the
#   median gets better while the tail gets much worse: look at both.
#
# Benchmarks know this trick. MLPerf's inference rules forbid, for language models, sorting samples beyond the boundary of
# the data set: otherwise an offline result would measure the sorting.
#
# Padding is also a property of the **kernel**. Attention that works on packed rows pads nothing, and there buckets buy
# nothing:

# %% tags=["nbval-check-output"]
for attention in ("padded", "packed"):
    report = lab.run(mixed_workload(96, rate=None), prices, batching="static:8", attention=attention, blocks=4000)
    print(f"{attention}: {counted(report)}, {report.duration_s:.1f} s")

# %% [markdown]
# ### Measured: is padding really paid for?
#
# On the real model: sixteen requests, short and long prompts by turns, all there from the start, in batches of 4.

# %% tags=["nbval-ignore-output"]
long = quick(200, 100)
turns = [tuple(range(100, 100 + (12 if i % 2 else long))) for i in range(quick(16, 8))]
real = fixed_workload(turns, [2] * len(turns))
ways = {"as they come": dict(batching="static:4"), "in buckets": dict(batching="static:4:64")}
sorting = lab.compare(real, model, ways)
plain, grouped = sorting["as they come"], sorting["in buckets"]
for name, report in sorting.reports.items():
    print(f"{name:12}: {report.computed_tokens} useful positions, {report.padded_tokens} useless,", end=" ")
    print(f"{report.duration_s:.2f} s")
fewer = 1 - (grouped.padded_tokens + grouped.computed_tokens) / (plain.padded_tokens + plain.computed_tokens)
print(f"{fewer:.0%} fewer positions, {1 - grouped.duration_s / plain.duration_s:.0%} less time;", end=" ")
print("same tokens:", sorting.same["in buckets"])

# %% [markdown]
# This traffic was made for buckets: two lengths, everybody there, and answers of two tokens, so that prompts are most of the
# work. With longer answers the saving shrinks. It says nothing about your traffic.

# %% [markdown]
# ## Exercises
#
# ### 02.1 The rectangle, counted (fill in)
# You get prompt lengths and answer lengths of the requests of **one** batch. Return how many positions are useful, how many
# are padding of prompts, and how many belong to rows that have finished.

# %%
def rectangle(prompts, outputs):
    """{"useful": positions, "prompt padding": positions, "finished rows": positions}."""
    ### BEGIN SOLUTION
    return {
        "useful": sum(prompts) + sum(outputs) - len(prompts),
        "prompt padding": sum(max(prompts) - length for length in prompts),
        "finished rows": sum(max(outputs) - length for length in outputs),
    }
    ### END SOLUTION

lab.check("02.1", rectangle)

# %% tags=["nbval-check-output"]
with lab.course.when_done("02.1"):
    print("yours:     ", rectangle([3, 10, 6, 10], [8, 2, 5, 3]))
    print("the engine:", counted(four))

# %% [markdown]
# ### 02.2 Waiting for company (fill in)
# Requests arrive at `rate` per second, a batch starts when `batch` of them are there, and the engine is always free.
# How long does a request wait for the others, averaged over the batch?

# %%
def company(batch, rate):
    """Mean seconds from arrival to the start of the batch."""
    ### BEGIN SOLUTION
    return (batch - 1) / (2 * rate)
    ### END SOLUTION

lab.check("02.2", company)

# %% tags=["nbval-check-output"]
with lab.course.when_done("02.2"):
    free = lab.Priced(step=0.0, token=0.0)  # an infinitely fast engine: all that is left is waiting for company
    crowd = lab.chat_workload(requests=960, rate=2.0, seed=0)
    for size in (4, 16, 64):
        counted_wait = lab.run(crowd, free, batching=lab.Static(size)).queueing_s.mean
        print(f"batches of {size:2d} at 2 per second: formula {company(size, 2.0):5.2f} s, engine {counted_wait:5.2f} s")

# %% [markdown]
# ### 02.3 An order that wastes little (explore)
# Sixteen requests wait. `PROMPTS` and `OUTPUTS` are their lengths; batches are fours, in your order.
# `useless_share(order)` says what share of the positions is useless.
# **Find an order with at most 10 %.** (The tools: `sorted(range(16), key=…)`.)

# %% tags=["nbval-check-output"]
print(f"as they came:     {useless_share(range(16)):.1%}")
print(f"sorted by prompt: {useless_share(sorted(range(16), key=lambda i: PROMPTS[i])):.1%}")
print(f"sorted by answer: {useless_share(sorted(range(16), key=lambda i: OUTPUTS[i])):.1%}")

# %%
### BEGIN SOLUTION
### STUB: order = ...  # your answer: the numbers 0 to 15
order = sorted(range(16), key=lambda i: (PROMPTS[i] > 50, OUTPUTS[i]))
### END SOLUTION
lab.check("02.3", order)

# %% [markdown]
# What did you have to know that a server does not?
#
# ### 02.4 Too good to be true (break it)
# Somebody has "optimised" the static engine. The numbers are impressive. What is wrong?

# %% tags=["nbval-check-output"]
busy = lab.chat_workload(requests=24, rate=4.0, seed=0)
healthy = lab.run(busy, prices, batching="static:8", blocks=400)
suspect = broken_batching.run(busy, prices, "02.4", batching="static:8", blocks=400)
for name, report in {"healthy": healthy, "suspect": suspect}.items():
    print(f"{name}: {report.output_tokens_per_s:.1f} tokens/s, {report.wasted_slots} rows of finished requests,", end=" ")
    print(f"{report.mean_batch:.2f} useful rows per step, done after {report.duration_s:.2f} s")

# %% tags=["nbval-ignore-output"]
plots.batch_sizes({"healthy": healthy, "suspect": suspect})

# %% [markdown]
# Write the check that finds it. A row with `sampled` true has brought out an output token for `row.request`;
# `trace.requests[i].max_tokens` is how many request `i` asked for.
# Return the requests that got more, and how many more.

# %%
def after_the_end(trace):
    """{request: tokens it should never have got}; requests without any are left out."""
    ### BEGIN SOLUTION
    sampled = {}
    for step in trace:
        for row in step.rows:
            sampled[row.request] = sampled.get(row.request, 0) + row.sampled
    extra = {request: count - trace.requests[request].max_tokens for request, count in sampled.items()}
    return {request: count for request, count in extra.items() if count > 0}
    ### END SOLUTION

lab.check("02.4", after_the_end)

# %% tags=["nbval-check-output"]
with lab.course.when_done("02.4"):
    found = after_the_end(suspect.trace)
    print("healthy:", len(after_the_end(healthy.trace)), "requests with too many tokens")
    print("suspect:", len(found), "requests,", sum(found.values()), "tokens too many, of", suspect.output_tokens)

# %% [markdown]
# <details><summary>The bug, when you have found the requests</summary>
#
# Rows that have reached their end are not frozen: they are sampled, and their tokens are handed out, until the whole batch
# is done. The public bug in the sources did this after the end-of-text token.
#
# The suspect takes exactly as long as the healthy engine. What used to be called waste is now called output. A throughput
# that counts tokens nobody asked for is not a throughput.
# </details>

# %% [markdown]
# ## In real engines
#
# | where | what it does |
# |---|---|
# | transformers | `tokenizer(texts, padding=True)` and `model.generate(...)` are one static batch: padded to the longest, run until all rows are done (or `max_new_tokens`) |
# | TensorFlow Serving | `max_batch_size`, and `batch_timeout_micros` for the limit on waiting; `allowed_batch_sizes` pads the *number of rows* up to the next allowed one with dummy rows |
# | Triton | the dynamic batcher combines requests, and by default it does not wait for a full batch; without it, a batch is what one client sends |
# | TensorRT-LLM | the executor's option `BatchingType.STATIC`, beside `INFLIGHT` |
# | tf.data | `bucket_by_sequence_length`: buckets, for training |
# | vLLM, SGLang | no static batches: continuous batching is always on; kernels work on packed rows, so prompts are not padded to the longest |
#
# None of the servers waits for ever. It is worth looking up how long yours does.

# %% [markdown]
# ## Summary
#
# - A static batch is a rectangle of (longest prompt + longest answer − 1) × rows. What is not useful in it is padding, or
#   a finished row.
# - Small batches cannot keep up, large ones make people wait. The best size depends on the load.
# - Without a limit on time, one request's waiting has no limit either.
# - Length buckets remove padding, cost order and waiting, and cannot see how long answers will be.
#
# Next: [03 Dynamic batching](03_dynamic_batching.ipynb) adds the limit on time.
#
# ## Sources
#
# - Static batches in servers, and what they cost: Yu et al., *Orca*, OSDI 2022, section 3,
#   [usenix.org](https://www.usenix.org/conference/osdi22/presentation/yu).
# - Exercise 02.4: mistral-inference [pull request 270](https://github.com/mistralai/mistral-inference/pull/270), rows that
#   go on after their end.
# - No sorting beyond the data set: [MLPerf inference
#   rules](https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc), and [mlcommons/inference issue
#   2172](https://github.com/mlcommons/inference/issues/2172) on enforcing it.
# - [TensorFlow Serving batching
#   guide](https://github.com/tensorflow/serving/blob/master/tensorflow_serving/batching/README.md); [Triton
#   batchers](https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/batcher.html); [transformers:
#   padding](https://huggingface.co/docs/transformers/pad_truncation); [tf.data
#   bucket_by_sequence_length](https://www.tensorflow.org/api_docs/python/tf/data/experimental/bucket_by_sequence_length).
