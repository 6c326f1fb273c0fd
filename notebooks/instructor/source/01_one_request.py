# %% [markdown]
# # One request
#
# **Question.** You ask a language model something. There is a pause, then words appear one by one.
# What does the computer do in the pause, what between two words, and why does a server that has one answer to write
# gladly take seven more?
#
# You will see one prompt being answered, count what the model computes with and without its memory, and measure what a
# larger batch costs on *this* computer.
#
# About 35 minutes. You need nothing but notebook [00](00_start.ipynb).

# %% tags=["nbval-ignore-output"]
import lab
from lab.course import broken, plots, quick, scale
from lab.course.exercises.nb01 import work_ratio
from lab.course.stream import stream
from lab.live.figures import roofline
from lab.live.show import show
from lab.peaks import measure_peaks, this_machine
from lab.workload import fixed_workload

model = lab.load_model()
print(f"{model.name}: {model.num_parameters / 1e6:.0f} million parameters, {model.config.num_layers} layers")

# %% [markdown]
# ## 1. Watch one answer
#
# The tokens below are printed at the moment they are computed. Watch for the pause before the first one.

# %% tags=["nbval-ignore-output"]
question = "What is the capital of France and what is it known for?"
answer = stream(model, question, max_tokens=quick(48, 24))

# %% [markdown]
# Every engine step leaves a record. These are the first of this answer:

# %% tags=["nbval-ignore-output"]
for step in list(answer.trace)[:4]:
    kind = "prefill" if step.computed > 1 else "decode"
    text = model.decode([row.token for row in step.rows])
    milliseconds = 1000 * (step.end - step.start)
    print(f"step {step.index}: {step.computed:3d} tokens computed ({kind}), {milliseconds:6.1f} ms → {text!r}")

# %% tags=["nbval-ignore-output"]
plots.step_times(answer)

# %% [markdown]
# Two kinds of steps:
#
# - **Prefill**: the first step computes *all tokens of the prompt at once* and yields the first output token.
# - **Decode**: each later step computes *one* token, the one that came out last, and yields the next.
#
# The model cannot skip ahead: token 10 is an input of token 11.
# So one answer is a chain of steps, and no hardware can compute its steps side by side.
#
# (Decoding several tokens per step is possible by guessing and checking, *speculative decoding*. This course leaves it out.)
#
# Two numbers describe what the reader feels:
#
# - **TTFT**, time to first token: from the arrival to the first token. It is waiting in the queue plus the prefill.
# - **TPOT**, time per output token: the mean gap between tokens after the first.

# %% tags=["nbval-ignore-output"]
ttft, tpot = answer.ttft_s.p50, answer.tpot_s.p50
prompt = answer.trace.requests[0].num_prompt
print(f"TTFT {1000 * ttft:.0f} ms for a prompt of {prompt} tokens: {1000 * ttft / prompt:.1f} ms per prompt token")
print(f"TPOT {1000 * tpot:.0f} ms per output token")
print(f"on this computer one output token takes as long as {tpot / (ttft / prompt):.0f} prompt tokens")

# %% [markdown]
# Remember that last line. A prompt token and an output token take nearly the *same arithmetic*.
# What differs is only how many of them share a step. Section 3 finds out why that matters so much.

# %% [markdown]
# ## 2. What the KV cache saves
#
# In every layer, a token looks back at all tokens before it.
# It does so through two short vectors that each earlier token has left there, its **key** and its **value**.
# They never change, so the engine keeps them: the **KV cache**.
# Without it, every step would compute all earlier tokens again.

# %%
lab.predict(
    "01.p1",
    "A prompt of 43 tokens, an answer of 48. How many tokens does the model compute in total, with a KV cache?",
    options=["48", "90", "91", "2064"],
)

# %% tags=["nbval-check-output"]
work = fixed_workload([43], [48])  # lengths only: no model runs, every step gets a made-up time
prices = lab.Priced()
cached = lab.run(work, prices, batching="continuous:1")
print("with a KV cache:", cached.computed_tokens, "tokens in", cached.steps, "steps")

# %%
lab.reveal("01.p1", str(cached.computed_tokens), "43 for the prompt, then 47: nobody asks what follows the last token.")

# %% [markdown]
# Now the same engine *without* a cache. It forgets all keys and values at the end of each step.

# %%
lab.predict("01.p2", "And how many tokens does it compute without a KV cache?", unit="tokens")

# %% tags=["nbval-check-output"]
bare = broken.run_planted(work, prices, broken.without_cache, chunking="whole")
print("without a KV cache:", bare.computed_tokens, "tokens in", bare.steps, "steps")
print("the same by hand:", sum(43 + done for done in range(48)), "= 43 + 44 + … + 90")
print(f"the cache saves {1 - cached.computed_tokens / bare.computed_tokens:.1%} of the tokens")

# %%
lab.reveal("01.p2", bare.computed_tokens, unit="tokens")

# %% tags=["nbval-ignore-output"]
plots.tokens_computed({"with a KV cache": cached, "without": bare})

# %% [markdown]
# Counting is exact, but is it also *slower*? The real model, both ways:

# %% tags=["nbval-ignore-output"]
real = fixed_workload([tuple(model.encode_chat(question))], [quick(48, 24)])
with_cache = lab.run(real, model, batching="continuous:1")
without = broken.run_planted(real, model, broken.without_cache, chunking="whole")
print("same tokens:", with_cache.outputs == without.outputs)
for name, report in {"with a cache": with_cache, "without": without}.items():
    print(f"{name:13} {report.computed_tokens:5d} tokens computed, {report.duration_s:5.2f} s")
tokens = without.computed_tokens / with_cache.computed_tokens
print(f"{tokens:.0f}× the tokens took {without.duration_s / with_cache.duration_s:.1f}× the time")

# %% [markdown]
# ### What this shows, and what it does not
#
# The cache removes almost all of the work. Yet the time shrinks much less than the token count:
# computing many tokens in one step is cheap per token. It is the effect of section 1 again: a token that shares
# its step with many costs far less than one that has a step to itself.
#
# The cache is not free, and it does not remove everything:
#
# - It **costs memory**, for every token of every request that is in progress (exercise 01.2). That memory, not
#   arithmetic, is often what limits how many requests a server can batch (notebook 05).
# - Each new token still **reads** all keys and values before it. For long conversations that reading becomes the larger
#   part of a decode step.
# - Computing 43 tokens once and reusing them is also possible *between* requests that begin alike: prefix caching, a
#   later notebook.

# %% [markdown]
# ## 3. Why a step for eight is nearly free
#
# Eight people, eight answers, each at its own place in its own text.
# One decode step can serve all of them: eight tokens go through the model side by side.

# %%
lab.predict(
    "01.p3",
    "A decode step for 1 request takes some time. How many times longer does a step for 8 requests take?",
    options=["less than 1.5×", "1.5 to 3×", "3 to 6×", "more than 6×"],
)

# %% tags=["nbval-ignore-output"]
curve = lab.decode_curve(model, batches=quick((1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16)), steps=quick(12, 6))
for point in curve:
    print(f"batch {point.batch:2d}: {point.step_ms:6.1f} ms per step, {point.tokens_per_s:6.1f} tokens/s")

# %% tags=["nbval-ignore-output"]
plots.decode_curve(curve)

# %% tags=["nbval-ignore-output"]
step = {point.batch: point.step_ms for point in curve}
ratio = step[8] / step[1]
bins = {"less than 1.5×": 1.5, "1.5 to 3×": 3, "3 to 6×": 6, "more than 6×": float("inf")}
lab.reveal("01.p3", next(name for name, upto in bins.items() if ratio < upto), f"Measured: {ratio:.2f}×.")

# %% tags=["nbval-ignore-output"]
last = curve[-1]
print(f"A step for 8 takes {ratio:.2f}× as long as a step for 1, and makes 8× the tokens.")
print(f"From batch 1 to {last.batch}: {last.tokens_per_s / curve[0].tokens_per_s:.1f}× the tokens per second,")
print(f"and each reader's TPOT is {last.step_ms / curve[0].step_ms:.1f}× as long.")

# %% [markdown]
# ### Why?
#
# A step must fetch every weight of the model from memory, whoever it works for.
# Once a weight is there, using it for eight tokens instead of one is quick.
# So count, for one decode step, the bytes it moves and the arithmetic it does (64 tokens of context per request):

# %% tags=["nbval-check-output"]
print("batch   megabytes moved   million operations   operations per byte")
for batch in (1, 2, 4, 8, 16, 32):
    moved = model.step_bytes(num_tokens=batch, resident_tokens=64 * batch)
    done = model.step_flops(num_tokens=batch, sum_of_context=65 * batch, num_sampled=batch)
    print(f"{batch:5d} {moved / 1e6:17.0f} {done / 1e6:20.0f} {done / moved:21.1f}")

# %% [markdown]
# The bytes hardly change; the arithmetic grows with the batch.
# A decode step for one does about half an operation per byte it fetches, while computers can do many: it waits for memory.
# Every request that joins uses weights that are on their way anyway.
#
# The same table explains the cheap prompt token: a prefill of 43 tokens moves the bytes of one step and does the
# arithmetic of 43.
#
# This ends where the arithmetic takes longer than the fetching. From there on, twice the batch is twice the time.
# Where that is depends on the machine. On the right-hand side of your plot you may see it begin.

# %% [markdown]
# ### Both limits in one picture: the roofline
#
# Every dot is a step, measured: how many operations it does per byte it must move, and how many per second it reaches.
# The line is what this computer can do at best, measured once: on its slope, memory is the limit; on its flat part,
# arithmetic. One answer alone, and sixteen at once, whose prompts the engine takes in pieces
# (notebook 07 says why):

# %% tags=["nbval-ignore-output"]
peaks = this_machine() or measure_peaks()  # three seconds, once
together = fixed_workload([tuple(model.encode_chat(question))] * 16, [quick(16, 6)] * 16)
sixteen = lab.run(together, model, batching="continuous:16")
show(roofline({"one answer": answer, "sixteen at once": sixteen}, peaks))

# %% [markdown]
# A decode step for one is far down on the slope, the same step for sixteen further up: more operations for nearly the same
# bytes. The more tokens a step computes, prompt or output, the further to the right it is. Dots far below the line have
# spent their time on something else: small layers, starting threads, other programs. Dots above it mean that the line was
# measured while the computer was busy: `python3 -m lab doctor` measures it again.

# %% [markdown]
# ### Fewer bytes, other numbers
#
# If a small step waits for weights, then weights of half the size should take about half the time. `storage="fp16"` keeps
# each of them in two bytes instead of four and computes in float32 as before. What that does to speed, and to the *logits*,
# the scores of all possible next tokens, of which the largest wins:

# %% tags=["nbval-ignore-output"]
half = lab.load_model(storage="fp16")
sizes = {"batches": (1, 8), "steps": quick(12, 6)}
for exact, rounded in zip(lab.decode_curve(model, **sizes), lab.decode_curve(half, **sizes)):
    speedup = exact.step_ms / rounded.step_ms
    print(f"batch {exact.batch}: {exact.step_ms:.1f} ms as float32, {rounded.step_ms:.1f} ms as float16: {speedup:.2f}×")
difference = lab.storage_difference(prompts=[question], models=(model, half))
print(f"logits differ by up to {difference.largest:.3f} over {difference.positions} positions of the prompt;")
print(f"the best token is the same at {difference.same_next_token:.0%} of them, the smallest lead of a best token over the second", end=" ")
print(f"is {difference.smallest_margin:.3f}")
del half

# %% [markdown]
# It is less than twice as fast, and the less so the more requests share the step: only the weights shrink, the rest of the
# step stays what it was. Where two tokens are closer to each other than that difference, the rounded model may say another word, and then write a
# different text. This course compares policies by their tokens, so it never does this by default. Servers on GPUs do: bf16 and
# fp16, and smaller types still, are how a card reads its weights in less time.

# %% [markdown]
# ### A step that is written down
#
# Between its matrix products a step does a hundred small things, and between any two of them Python has to find a tensor
# and pass its address on. That takes as long for one request as for thirty-two. But the next decode step will do exactly the
# same things in the same order, so the lab writes the list down once and has the cores repeat it.
# On a GPU, where every small thing is a kernel launch, the same idea is called a *CUDA graph*. With it and without:

# %% tags=["nbval-ignore-output"]
sizes = {"batches": (1, 16), "steps": quick(12, 6)}
for written, spoken in zip(lab.decode_curve(model, **sizes), lab.decode_curve(model, recorded=False, **sizes)):
    saved = spoken.step_ms - written.step_ms
    print(f"batch {written.batch:2d}: {spoken.step_ms:.1f} ms step by step, {written.step_ms:.1f} ms from the list, ", end="")
    print(f"{saved:.1f} ms or {saved / spoken.step_ms:.0%} less")

# %% [markdown]
# ### The same on an H100
#
# The lab can also give a step the time it would take on a machine that is not here. Nothing is computed then; time is
# *simulated*, from published measurements. Notebook [11](11_two_clocks.ipynb) says how far to trust that.

# %% tags=["nbval-check-output"]
h100 = lab.simulated("llama-3-8b", on="h100-sxm")
print(f"{h100.name}, 64 tokens of context per request")
for batch in (1, 8, 32, 128, 512):
    seconds = scale.decode_seconds(h100, batch, context=64)
    print(f"batch {batch:3d}: {1000 * seconds:5.1f} ms per step, {batch / seconds:6.0f} tokens/s")
print(f"a step takes twice as long as the step for one from batch {scale.knee(h100, context=64)} on")

# %% [markdown]
# The shape is that of your plot; the bend comes an order of magnitude later. There, eight requests are not a batch, they are
# hardly a load at all.

# %% [markdown]
# ### What this does not show
#
# - **Other machines.** On a data-centre GPU the same curve stays flat much longer: in Vidur's published measurements of
#   Llama-2-7B it bends at 128 to 256 tokens per step on an A100, and at 256 or more on an H100. The shape is the same.
# - **Long contexts.** Keys and values belong to one request each: reading them is *not* shared. With long conversations,
#   and with memory full of them, the curve bends earlier.
# - **A smooth curve.** Matrix routines have favourite sizes. On some machines a step for 4 is even quicker than a step for
#   2; that is the routine, not the principle.
# - **Latency for free.** "Batching is free" is loosely put: a step for many is *a little* longer, so everybody's TPOT grows a
#   little. And a prompt that joins makes one step much longer (notebook 07).

# %% [markdown]
# ## Exercises
#
# ### 01.1 TTFT and TPOT from timestamps (fill in)
# You get the arrival time of a request and the times of its tokens. Return the pair (TTFT, TPOT), in seconds.
# A request with a single token has no TPOT: return `None` for it.

# %%
def latencies(arrival, token_times):
    """(TTFT, TPOT) in seconds; the first token does not count for TPOT."""
    ### BEGIN SOLUTION
    ttft = token_times[0] - arrival
    if len(token_times) == 1:
        return ttft, None
    return ttft, (token_times[-1] - token_times[0]) / (len(token_times) - 1)
    ### END SOLUTION

lab.check("01.1", latencies)

# %% tags=["nbval-check-output"]
with lab.course.when_done("01.1"):
    print("yours:   ", *(f"{1000 * value:.1f} ms" for value in latencies(0.0, cached.times[0].tokens)))
    print("the lab's:", f"{1000 * cached.ttft_s.p50:.1f} ms {1000 * cached.tpot_s.p50:.1f} ms")

# %% [markdown]
# Beware of names. Benchmarks disagree about these two:
#
# | tool | what it calls TPOT | when its TTFT clock starts |
# |---|---|---|
# | this lab | without the first token | at the arrival |
# | `vllm bench serve` | without the first token | when the request is sent |
# | vLLM `--enable-per-request-metrics` | (`mean_itl_ms`) | when the request is *scheduled*: the queue is extra |
# | GuideLLM | **with** the first token | (look it up before you compare) |

# %% [markdown]
# ### 01.2 How large is the KV cache? (fill in)
# A model has `layers` layers. In each of them every token leaves one key and one value per *key/value head*, and
# each of those is `head_dim` numbers of `bytes_per_number` bytes.
# How many bytes do `tokens` tokens keep?

# %%
def cache_bytes(tokens, layers, kv_heads, head_dim, bytes_per_number):
    """Bytes of keys and values that `tokens` tokens leave behind."""
    ### BEGIN SOLUTION
    return tokens * layers * 2 * kv_heads * head_dim * bytes_per_number
    ### END SOLUTION

lab.check("01.2", cache_bytes)

# %% tags=["nbval-check-output"]
with lab.course.when_done("01.2"):
    c = model.config
    print("one token here:", cache_bytes(1, c.num_layers, c.num_kv_heads, c.head_dim, 4), "bytes;", end=" ")
    print("the engine says", model.kv_bytes_per_token)
    llama = cache_bytes(8192, layers=32, kv_heads=8, head_dim=128, bytes_per_number=2)
    print(f"one conversation of 8,192 tokens with Llama-3-8B: {llama / 2**30:.2f} GiB")
    print(f"in 24 GiB, beside 15 GiB of weights: {int((24 - 15) * 2**30 // llama)} such conversations at once")

# %% [markdown]
# ### 01.3 How long must an answer be? (explore)
# `work_ratio(n)` runs a prompt of 40 tokens and an answer of `n` tokens, with and without a cache, and divides the token
# counts. Try some lengths.
# **From which `n` on does the engine without a cache compute at least 20 times as many tokens?**

# %% tags=["nbval-check-output"]
for length in (1, 10, 40):
    print(f"{length:3d} output tokens: {work_ratio(length):.2f}× the tokens without a cache")

# %%
### BEGIN SOLUTION
### STUB: shortest = ...  # your answer: a number of output tokens
shortest = next(n for n in range(1, 200) if work_ratio(n) >= 20)
### END SOLUTION
lab.check("01.3", shortest)

# %% [markdown]
# ### 01.4 A cache that is lost (break it)
# The engine below has a KV cache, and its answers are right, token for token.
# Still, something is wrong: it computes more than it should.
# That kind of bug survives every test that only looks at the answers.
#
# Find the steps that compute tokens *again*: a request that already has output should compute one token per step.
# A trace is a sequence of steps; `step.rows` are the requests in it; a row has `request`, `num_tokens` (computed in this
# step) and `sampled` (an output token came out).

# %% tags=["nbval-check-output"]
suspect = broken.run(fixed_workload([43], [48]), lab.Priced(), "01.4", batching="continuous:1")
print(f"healthy: {cached.computed_tokens} tokens in {cached.duration_s:.3f} s (virtual)")
print(f"suspect: {suspect.computed_tokens} tokens in {suspect.duration_s:.3f} s (virtual)")

# %% tags=["nbval-ignore-output"]
plots.step_times(suspect)

# %%
def recomputing_steps(trace):
    """Indices of the steps in which a request that already has output computes more than one token."""
    ### BEGIN SOLUTION
    found, started = [], set()
    for step in trace:
        for row in step.rows:
            if row.request in started and row.num_tokens > 1:
                found.append(step.index)
            if row.sampled:
                started.add(row.request)
    return found
    ### END SOLUTION

lab.check("01.4", recomputing_steps)

# %% tags=["nbval-check-output"]
with lab.course.when_done("01.4"):
    for index in recomputing_steps(suspect.trace):
        row = suspect.trace[index].rows[0]
        print(f"step {index}: computes {row.num_tokens} tokens again; the cache was lost at {row.num_tokens - 1}")
    print("block size of the cache:", suspect.trace.meta["block_size"])

# %% [markdown]
# What do those lengths have in common?
#
# <details><summary>When you have an idea</summary>
#
# They are multiples of the block size. The engine keeps keys and values in blocks, and this one loses them all whenever a
# block is full. The real bug (see Sources) was found by a reader of the code, who noticed that the cache was there and
# not used.
# </details>

# %% [markdown]
# ## In real engines
#
# | engine | prefill, decode and the cache |
# |---|---|
# | transformers | `model.generate(..., use_cache=False)` is our engine without a cache; the default is `True` |
# | vLLM | cache in blocks, `--block-size`; its share of memory: `--gpu-memory-utilization`; metrics `vllm:time_to_first_token_seconds`, `vllm:inter_token_latency_seconds` |
# | SGLang | says *page* for block: `--page-size`; memory for weights and cache: `--mem-fraction-static` |
# | TensorRT-LLM | says *context phase* and *generation phase* for prefill and decode |
# | Triton with TensorRT-LLM | cache memory: `kv_cache_free_gpu_mem_fraction` |

# %% [markdown]
# ## Summary
#
# - An answer is one prefill step and then one decode step per token. They form a chain.
# - The KV cache turns "compute everything again" into "compute one token": with it, prompt + answer − 1 tokens are computed.
# - A decode step spends its time fetching weights. More requests in the step use the same weights, so a step for eight
#   costs little more than a step for one. This is why servers batch.
# - The limits: memory for keys and values, and arithmetic once the batch is large.
#
# Next: [02 Static batching](02_static_batching.ipynb), the obvious way to batch; or straight to
# [04 Continuous batching](04_continuous_batching.ipynb).
#
# ## Sources
#
# - Exercise 01.4: [rasbt/LLMs-from-scratch issue 913](https://github.com/rasbt/LLMs-from-scratch/issues/913), a KV cache that
#   was not used.
# - Blocks: Kwon et al., *Efficient Memory Management for Large Language Model Serving with PagedAttention*, SOSP 2023,
#   [arXiv 2309.06180](https://arxiv.org/abs/2309.06180).
# - Where GPUs bend: profiles published with Agrawal et al., *Vidur*, MLSys 2024, [arXiv 2405.05465](https://arxiv.org/abs/2405.05465);
#   linear layers and norms only.
# - Definitions of TTFT: [vLLM, per-request metrics](https://docs.vllm.ai/en/latest/features/per_request_metrics).
# - In-flight batching and its two phases:
#   [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/features/paged-attention-ifb-scheduler.html).
