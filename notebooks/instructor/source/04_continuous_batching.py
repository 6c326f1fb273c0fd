# %% [markdown]
# # Continuous batching
#
# **Question.** Requests do not arrive together, and their answers are not equally long.
# Must a request wait until the batch before it is through?
#
# *Static* batching says yes: collect a batch, run it until its last answer is done, then take the next.
# *Continuous* batching decides anew at **every step**: whoever is done leaves, whoever waits takes the seat.
# Orca (OSDI 2022) introduced it as *iteration-level scheduling*; NVIDIA says *in-flight batching*. It is the same idea.
#
# You will watch both live, measure them on the real model, count where the difference comes from on a virtual clock,
# and read a famous number, 36.9×, with its small print.
#
# About 45 minutes. Notebook [01](01_one_request.ipynb) comes first; [02](02_static_batching.ipynb) helps.

# %% tags=["nbval-ignore-output"]
import lab
from lab.course import broken, plots, quick
from lab.course.exercises.nb04 import seconds_both
from lab.course.joining import JoiningRule
from lab.course.orca import normalised_latency, orca_workload, rate_within

model = lab.load_model()
work = lab.chat_workload(requests=quick(24, 10), rate=3.0, seed=0)
print(f"{len(work)} chat requests, {work.rate:.0f} per second on average")

# %% [markdown]
# First, two guesses. TTFT, the time to the first token, counts from a request's arrival until its user holds a token.

# %%
lab.predict(
    "04.p1",
    "24 requests, 3 per second, batches of 8. How many times shorter is the median time to the first token "
    "with continuous batching?",
    unit="×",
)

# %%
lab.predict(
    "04.p2",
    "And the output tokens per second: continuous divided by static?",
    unit="×",
)

# %% [markdown]
# ## 1. Live
#
# Press **Start**. The same requests go through static batching first, then through continuous batching.
# Each line is a request, time runs to the right, and a line fills as its tokens are computed.
# Move the sliders while it runs, or before you run it again: more load, or larger batches.

# %% tags=["nbval-ignore-output"]
runs = {
    "static": dict(batching=lab.Static(max_batch=8)),
    "continuous": dict(batching=lab.Continuous(max_running=8)),
}
session = lab.live.Session(work, model, runs, name="04")
session.dashboard()

# %% [markdown]
# Things to look for:
#
# - Static: nothing happens until eight requests have arrived. Why does the first one wait for the eighth?
# - Static: lines that are done but go on, hatched. The batch is a rectangle with one *row* per request, and a row that has
#   finished is computed to the end.
# - Static: hatched stretches at the beginning. Short prompts are *padded* to the longest of their batch.
# - Continuous: a new line starts in the very step after another has ended.
#
# If an error ended the run, the next cell raises it; otherwise it just stops the engine.

# %% tags=["nbval-ignore-output"]
session.stop()

# %% [markdown]
# ## 2. Measured
#
# Now without watching, so that nothing disturbs the clock.

# %% tags=["nbval-ignore-output"]
measured = lab.compare(work, model, runs)
print(measured.summary())

# %% tags=["nbval-ignore-output"]
static, continuous = measured["static"], measured["continuous"]
lab.reveal("04.p1", static.ttft_s.p50 / continuous.ttft_s.p50, unit="×")

# %% tags=["nbval-ignore-output"]
lab.reveal("04.p2", continuous.output_tokens_per_s / static.output_tokens_per_s, unit="×")

# %% tags=["nbval-ignore-output"]
plots.timelines(measured)

# %% tags=["nbval-ignore-output"]
print(f"continuous: {continuous.output_tokens_per_s / static.output_tokens_per_s:.2f}× the output tokens per second,")
print(f"first token after {continuous.ttft_s.p50:.2f} s instead of {static.ttft_s.p50:.2f} s (median),")
print(f"{continuous.padded_tokens} padded tokens instead of {static.padded_tokens}.")
print(f"Same tokens: {measured.same['continuous']}. Real tokens computed: {static.computed_tokens} and")
print(f"{continuous.computed_tokens}. Both did the same useful work; one did more besides, and later.")

# %% [markdown]
# ### Be careful with that first number
#
# A time to first token that is so many times shorter looks like magic. It is partly a definition.
# Our static batch hands out its answers *when the batch ends*. That is what Orca's authors say of the systems of their time:
# a request that has finished early cannot return before its batch is through. So its first token comes with its last.
# A static server could stream tokens as it makes them. We can ask the engine for exactly that, and for the
# breakdown, on a clock that is the same everywhere.

# %% [markdown]
# ## 3. Where the difference comes from
#
# On the **virtual clock** a step costs 40 ms plus 2 ms for each token in it, padding included, which is close to what
# the reference machine of this course needs. Nothing is computed, so these numbers are the same on every computer.

# %% tags=["nbval-check-output"]
prices = lab.Priced(step=0.040, token=0.002)
traffic = lab.chat_workload(requests=24, rate=3.0, seed=0)
streaming = runs | {"static, streaming": dict(batching=lab.Static(8), delivery="token")}
priced = lab.compare(traffic, prices, streaming)
for name, report in priced.reports.items():
    print(f"{name:18} TTFT median {report.ttft_s.p50:5.2f} s, of which queueing {report.queueing_s.p50:5.2f} s;", end=" ")
    print(f"{report.output_tokens_per_s:5.1f} tokens/s, {report.steps} steps")

# %% [markdown]
# Three different things add up in the static TTFT:
#
# 1. **Waiting for company.** The batch starts when the eighth request is there.
# 2. **Waiting for the batch before.** Nobody may join a batch that runs.
# 3. **Waiting for delivery.** Tokens are handed out at the end. Streaming removes this one only.
#
# And two kinds of useless work stretch every batch: prompts padded to the longest, and rows that have finished.
# How much of the static run is useful?

# %%
lab.predict(
    "04.p3",
    "Of all the tokens that static batching pushes through the model here, what share is padding or finished rows?",
    unit="%",
)

# %% tags=["nbval-check-output"]
plain = priced["static"]
total = plain.computed_tokens + plain.padded_tokens
print(f"{plain.computed_tokens} useful tokens, {plain.padded_tokens} useless ones: {plain.padded_tokens / total:.1%} waste")
print(f"rows of finished requests that were still computed: {plain.wasted_slots}")
print(f"steps: static {plain.steps}, continuous {priced['continuous'].steps}", end=" ")
print(f"(requests per step: {plain.mean_batch:.2f} and {priced['continuous'].mean_batch:.2f})")

# %%
lab.reveal("04.p3", 100 * plain.padded_tokens / total, unit="%")

# %% tags=["nbval-ignore-output"]
plots.batch_sizes(priced.reports, ("static", "continuous"))

# %% [markdown]
# The picture shows the mechanism. A static batch starts with eight useful rows and thins out: answers end one by one,
# and their seats stay empty until the longest is done. Continuous batching refills each seat in the next step.
#
# Here is the code that makes the difference. Both policies answer the same question before every step:
# how many of those who wait may join?
# In the first, read the first `if`: while anybody runs, nobody joins.
# In the second, read `self.max_running - view.running`: as many as there are free seats.
# (The rest belongs to notebooks 02 and 03.)

# %%
lab.course.show(lab.Static.admit)

# %%
lab.course.show(lab.Continuous.admit)

# %% [markdown]
# ## 4. It depends on the load
#
# One number for "continuous against static" does not exist. Both at six arrival rates, 48 requests each:

# %% tags=["nbval-check-output"]
rates = (0.5, 1, 2, 3, 4, 6)
many = lab.chat_workload(requests=48, seed=0)
sweep = {rate: lab.compare(many.at_rate(rate), prices, runs) for rate in rates}
print("requests/s   tokens/s: static  continuous   ratio    end-to-end, median: static  continuous")
for rate, pair in sweep.items():
    a, b = pair["static"], pair["continuous"]
    print(f"{rate:10.1f} {a.output_tokens_per_s:18.1f} {b.output_tokens_per_s:11.1f}", end=" ")
    print(f"{b.output_tokens_per_s / a.output_tokens_per_s:7.2f} {a.e2e_s.p50:28.1f} s {b.e2e_s.p50:9.1f} s")

# %% tags=["nbval-ignore-output"]
plots.load_curves(sweep)

# %% [markdown]
# - **Low load.** Tokens per second are nearly the same: both are limited by how fast people ask. The gain is *waiting time*:
#   a static batch waits long for its eighth member. (Notebook 03 gives it a timer.)
# - **In between**, here around 2 and 3 requests per second, static batching can no longer keep up: its throughput stays
#   behind the load, so its queue grows. Continuous batching still follows. In longer traffic, one queue would grow without
#   end and the other would not, and the ratio of their waiting times would be as large as you have patience for.
# - **High load.** Neither keeps up. What remains is a ratio of throughputs: how many seats stay empty in one and not in
#   the other.

# %% [markdown]
# ### The same on an H100
#
# The same 48 requests and 8 seats, Llama-3-8B on an H100 (*simulated*, notebook [11](11_two_clocks.ipynb)):

# %% tags=["nbval-check-output"]
h100 = lab.simulated("llama-3-8b", on="h100-sxm")
for rate in (5, 20, 80):
    pair = lab.compare(many.at_rate(rate), h100, runs)
    a, b = pair["static"], pair["continuous"]
    print(f"{rate:2d} requests/s: {a.output_tokens_per_s:3.0f} → {b.output_tokens_per_s:3.0f} tokens/s,", end=" ")
    print(f"{b.output_tokens_per_s / a.output_tokens_per_s:.2f}×; end-to-end {a.e2e_s.p50:.2f} → {b.e2e_s.p50:.2f} s (simulated)")

# %% [markdown]
# The story is the same, at ten times the rate: low load, in between, high load. What is overload here is a light load there.
# A ratio without its load, and its machine, says nothing. Which brings us to a famous number.

# %% [markdown]
# ## 5. "36.9 times the throughput"
#
# Orca's abstract reports **36.9×** the throughput of FasterTransformer "at the same level of latency". What was measured:
#
# | | Orca's experiment |
# |---|---|
# | model | GPT-3's shape, 175 billion parameters, 16 bits, on 16 A100-40GB GPUs |
# | requests | synthetic: prompts of 32 to 512 tokens, answers of 1 to 128, both uniform; no early stop; Poisson arrivals |
# | baseline | FasterTransformer under a request-level scheduler of the authors' own, best of batch size 1 and 8 |
# | measure | *median* of end-to-end time ÷ answer length, called normalised latency |
# | the number | at 190 ms per token: 6.81 against 0.185 requests per second |
#
# So it is a ratio of two **arrival rates** at the **same latency**.
# Let us take the same kind of requests and the same measure, with our own prices: a step costs 40 ms plus 0.2 ms per
# token, because on a large GPU steps are much flatter than on this computer.
# "By the batch" takes up to 8 of those who wait, without waiting for more, and runs them to the end.

# %%
lab.predict(
    "04.p4",
    "Median latency of at most 60 ms per token: how many times more requests per second can continuous batching (32) "
    "take than batching by the batch (8)?",
    unit="×",
)

# %% tags=["nbval-check-output"]
flat = lab.Priced(step=0.040, token=0.0002)
orca, rates = orca_workload(requests=60, seed=0), (0.1, 0.2, 0.5, 1, 2, 3, 4, 6, 8, 12)
policies = {"by the batch, 8": "dynamic:8:0", "continuous, 8": "continuous:8", "continuous, 32": "continuous:32"}
latency = {
    name: [normalised_latency(lab.run(orca.at_rate(rate), flat, batching=spec, blocks=3000)) for rate in rates]
    for name, spec in policies.items()
}
print("requests/s" + "".join(f"{name:>18}" for name in policies), " (median ms per token)")
for index, rate in enumerate(rates):
    print(f"{rate:10.1f}" + "".join(f"{1000 * values[index]:18.0f}" for values in latency.values()))

# %% tags=["nbval-check-output"]
for limit in (0.06, 0.08, 0.20, 0.30):
    most = {name: rate_within(rates, values, limit) for name, values in latency.items()}
    gain = most["continuous, 32"] / most["by the batch, 8"]
    more = " or more" if most["continuous, 32"] == rates[-1] else ""
    print(f"at most {1000 * limit:3.0f} ms per token: {most['by the batch, 8']} → {most['continuous, 32']} requests/s,", end=" ")
    print(f"{gain:.0f}×{more}; with batches of 8 on both sides {most['continuous, 8'] / most['by the batch, 8']:.0f}×")

# %%
within = {name: rate_within(rates, values, 0.06) for name, values in latency.items()}
lab.reveal("04.p4", within["continuous, 32"] / within["by the batch, 8"], unit="×")

# %% tags=["nbval-ignore-output"]
plots.latency_curves(rates, latency)

# %% [markdown]
# One pair of curves, many ratios. Where you draw the line decides which one you get:
#
# - A **tight** limit is one that batching by the batch can hold only while almost nobody asks. The ratio is huge.
# - A **loose** limit lets the queue grow, and the ratio shrinks.
# - Part of it is not continuous batching but a **larger batch** (32 against 8).
#
# So is 36.9× wrong? No: it is what was measured, in that set-up, at that limit. Quoted as "continuous batching is 37 times
# faster", it is. (The often quoted 23× is
# [another experiment](https://www.anyscale.com/blog/continuous-batching-llm-inference), by Anyscale in 2023.)
#
# ### What our numbers show, and what they do not
#
# - They show the mechanism: same tokens, same useful work, fewer empty seats and less waiting.
# - They do not show your factor. It depends on load, on how *uneven* the answers are (exercise 04.3), on batch sizes
#   and on how flat steps are.
# - With 60 requests the right-hand side of the picture is kind to everybody: in longer traffic the queues there go on growing.
# - A median hides the tail. And nobody reports error bars: run other seeds before you believe a difference.

# %% [markdown]
# ## 6. What continuous batching does not solve
#
# - **Memory.** Seats are not the only limit: every running request keeps keys and values, and they grow. When memory is full,
#   somebody has to be thrown out and computed again later: *preemption*. That is notebook 05.
# - **Long prompts.** A prompt that joins makes its step long, and everybody who is reading along waits.
#   That is notebook 07, chunked prefill.
# - **Who is next.** So far it is first come, first served. Notebook 09 changes the order.
#
# A glimpse of the first, on purpose with far too little memory (18 blocks of 16 tokens):

# %% tags=["nbval-check-output"]
tight = lab.run(traffic, prices, batching=lab.Continuous(8), blocks=18)
roomy = priced["continuous"]
print(f"enough memory: {roomy.preemptions} preemptions, {roomy.recomputed_tokens} tokens computed again, ", end="")
print(f"{roomy.output_tokens_per_s:.1f} tokens/s")
print(f"18 blocks:     {tight.preemptions} preemptions, {tight.recomputed_tokens} tokens computed again, ", end="")
print(f"{tight.output_tokens_per_s:.1f} tokens/s")

# %% [markdown]
# ## Exercises
#
# ### 04.1 Who may join this step? (fill in)
# Write the rule of continuous batching yourself.
# Before every step you learn how many requests wait, how many run, and how many may run at most.
# Return how many may join now.

# %%
def may_join(waiting, running, max_running):
    """How many of the waiting requests join the step that is about to begin."""
    ### BEGIN SOLUTION
    return max(0, min(waiting, max_running - running))
    ### END SOLUTION

lab.check("04.1", may_join)

# %% tags=["nbval-check-output"]
with lab.course.when_done("04.1"):
    mine = lab.run(traffic, prices, batching=JoiningRule(may_join, max_running=8))
    print(f"your rule:      {mine.steps} steps, {mine.duration_s:.2f} s")
    print(f"lab.Continuous: {priced['continuous'].steps} steps, {priced['continuous'].duration_s:.2f} s")

# %% [markdown]
# ### 04.2 Two kinds of waste, counted (fill in)
# `report.padded_tokens` lumps two things together. Separate them.
#
# Every step of a trace has `rows`. A row has `num_tokens`, the tokens that were wanted, and `padding`, tokens that were
# computed and thrown away. A row with `num_tokens == 0` is a finished request that is still carried along.

# %%
def waste(trace):
    """{"prompt padding": tokens, "finished rows": tokens} over all steps."""
    ### BEGIN SOLUTION
    prompts = finished = 0
    for step in trace:
        for row in step.rows:
            if row.num_tokens == 0:
                finished += row.padding
            else:
                prompts += row.padding
    return {"prompt padding": prompts, "finished rows": finished}
    ### END SOLUTION

lab.check("04.2", waste)

# %% tags=["nbval-check-output"]
with lab.course.when_done("04.2"):
    print("static:    ", waste(priced["static"].trace))
    print("continuous:", waste(priced["continuous"].trace))

# %% [markdown]
# ### 04.3 Traffic for which it makes no difference (explore)
# Is continuous batching always better? Find 16 answer lengths (10 to 200 tokens on average) and 16 arrival times (within
# 10 seconds) with which **static batching of 8 needs at most 2 % longer**.
# `seconds_both(outputs, arrivals)` gives both times. What is it about traffic that makes the difference?

# %% tags=["nbval-check-output"]
outputs = [8, 56, 20, 44, 12, 52, 32, 32, 8, 56, 20, 44, 12, 52, 32, 32]
arrivals = [0.2 * i for i in range(16)]
print("static {:.2f} s, continuous {:.2f} s".format(*seconds_both(outputs, arrivals)))

# %%
### BEGIN SOLUTION
### STUB: even_traffic = ...  # your answer: (outputs, arrivals)
even_traffic = ([32] * 16, [0.0] * 16)
### END SOLUTION
lab.check("04.3", even_traffic)

# %% [markdown]
# ### 04.4 A seat is free, somebody waits, nobody joins (break it)
# The engine below claims to batch continuously. Its tokens are right, nothing is padded, no counter looks odd.
# It is just slower than it should be. Look at the two pictures first: what is different?

# %% tags=["nbval-check-output"]
busy = lab.chat_workload(requests=24, rate=6.0, seed=0)
healthy = lab.run(busy, prices, batching=lab.Continuous(8))
suspect = broken.run(busy, prices, "04.4", batching=lab.Continuous(8))
for name, report in {"healthy": healthy, "suspect": suspect}.items():
    print(f"{name}: {report.output_tokens_per_s:5.1f} tokens/s, TTFT p95 {report.ttft_s.p95:.2f} s,", end=" ")
    print(f"{report.steps} steps, {report.mean_batch:.2f} requests per step, {report.padded_tokens} padded")

# %% tags=["nbval-ignore-output"]
plots.batch_sizes({"healthy": healthy, "suspect": suspect})

# %% [markdown]
# Now write the check that would have caught it: a rule that holds for *every* step of a healthy engine.
#
# `step.waiting` and `step.running` are counted after a step. Somebody joined a step when one of its `events` has the
# `kind` "admitted". Return the steps that nobody joined although, after the step before, somebody waited and fewer than
# `max_running` were running.

# %%
def idle_seats(trace, max_running):
    """Indices of steps that nobody joined although there was room and somebody waited."""
    ### BEGIN SOLUTION
    found, steps = [], list(trace)
    for before, step in zip(steps, steps[1:]):
        room = before.running < max_running and before.waiting > 0
        if room and not any(event.kind == "admitted" for event in step.events):
            found.append(step.index)
    return found
    ### END SOLUTION

lab.check("04.4", idle_seats)

# %% tags=["nbval-check-output"]
with lab.course.when_done("04.4"):
    print("healthy:", len(idle_seats(healthy.trace, 8)), "such steps")
    print("suspect:", len(idle_seats(suspect.trace, 8)), "such steps of", suspect.steps)

# %% [markdown]
# No single request looks wrong. A rule that must hold at every step finds it at once.
#
# <details><summary>The bug, when you have found the steps</summary>
#
# A flag says that the batch is full. It is set when the last seat is taken, and cleared only when the batch is
# *empty*, instead of being worked out afresh before every step. A real engine had a flag of this kind; see the sources.
# </details>

# %% [markdown]
# ## In real engines
#
# | engine | continuous batching there |
# |---|---|
# | vLLM | always on, no switch; seats: `--max-num-seqs`; tokens per step: `--max-num-batched-tokens` |
# | SGLang | always on; seats: `--max-running-requests`; how boldly memory is promised: `--schedule-conservativeness` |
# | TensorRT-LLM | *in-flight batching*; executor option `BatchingType.INFLIGHT`, the other one is `STATIC`; `CapacitySchedulerPolicy`: admit only what can run to its end, or more and pause some |
# | Triton with TensorRT-LLM | `batching_strategy`: `inflight_fused_batching`, or `V1` to turn it off; `decoupled` must be true to stream |
# | Text Generation Inference | `--waiting-served-ratio`: pause the running requests for a prefill only when enough others wait (1.2 times as many, for example); `--max-waiting-tokens` bounds that wait |
# | Triton without an LLM backend | the *dynamic batcher*: request-level batches, right for models that make one pass per request (notebook 03) |
#
# FriendliAI states that iteration batching and selective batching are patented in the US and Korea.

# %% [markdown]
# ## Summary
#
# - Static batching decides once per batch, continuous batching once per step. That is the whole difference.
# - It removes two kinds of waiting (for company, for the batch before) and two kinds of useless work (padding, finished
#   rows). The tokens stay the same.
# - At low load you gain waiting time, at high load throughput. With equal answers that arrive together you gain nothing.
# - A ratio without its load, latency limit and batch sizes says little.
#
# Next: [07 Chunked prefill](07_chunked_prefill.ipynb) looks after long prompts; notebook 05 puts a limit on memory.
#
# ## Sources
#
# - Yu et al., *Orca: A Distributed Serving System for Transformer-Based Generative Models*, OSDI 2022,
#   [usenix.org](https://www.usenix.org/conference/osdi22/presentation/yu). The 36.9× is in the abstract; the details of the
#   set-up are quoted from notes on the paper, not from its text.
# - Exercise 04.4: SGLang [issue 35537](https://github.com/sgl-project/sglang/issues/35537), a `batch_is_full` that stays set;
#   [PR 22539](https://github.com/sgl-project/sglang/pull/22539) describes the slow drain that clearing it too late causes.
# - Patents: [friendli.ai/research/orca](https://friendli.ai/research/orca).
# - Flags: [vLLM](https://docs.vllm.ai/), [SGLang](https://docs.sglang.io/),
#   [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/features/paged-attention-ifb-scheduler.html),
#   [Triton backend](https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/tensorrtllm_backend/docs/model_config.html),
#   [TGI launcher](https://huggingface.co/docs/text-generation-inference/basic_tutorials/launcher).
