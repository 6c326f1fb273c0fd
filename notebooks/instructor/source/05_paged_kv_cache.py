# %% [markdown]
# # The paged KV cache
#
# **Question.** Every running request keeps keys and values, and nobody knows how long its answer will be.
# How much memory should it get, and what happens when there is none left?
#
# You will weigh the cache of the real model, see three ways of reserving memory waste most of it, cut it into *blocks*
# instead, run out of blocks on purpose, and find out why one and the same decision is right on this computer and wrong on a GPU.
#
# About 50 minutes. Notebook [04](04_continuous_batching.ipynb) comes first.

# %% tags=["nbval-ignore-output"]
import lab
from lab.course import broken_memory, kv_use, pcie, plots_memory, quick
from lab.course.block_map import block_maps, block_tables, pools
from lab.course.exercises.nb05 import samples, with_blocks
from lab.course.swap_costs import counted_bytes_per_token, swap_costs
from lab.workload import fixed_workload

model = lab.load_model()
prices = lab.Priced(step=0.040, token=0.002)
print(f"{model.name}: {model.num_parameters / 1e6:.0f} million parameters")

# %% [markdown]
# ## 1. What it weighs
#
# Each token leaves one key and one value per layer and head (notebook 01, exercise 01.2). Do not believe the formula: let
# the real pool grow by one block and count the bytes.

# %% tags=["nbval-check-output"]
counted = counted_bytes_per_token(model)
weights = 4 * model.num_parameters  # this course computes in 32 bits
print(f"one token keeps {counted:,} bytes (counted); the model says {model.kv_bytes_per_token:,}")
print(f"a block of 16 tokens: {16 * counted / 2**20:.2f} MiB; a conversation of 2,048 tokens:", end=" ")
print(f"{2048 * counted / 2**20:.0f} MiB")
print(f"the weights are {weights / 2**20:.0f} MiB: as much as the keys and values of {weights // counted:,} tokens")

# %% [markdown]
# A GPU has the same problem with larger numbers: OPT-13B keeps 2 × 40 layers × 5,120 numbers of 2 bytes per token, and after
# its weights an A100 with 40 GB has room for 15,700 tokens, says the PagedAttention paper.
# How many requests share that room decides how large a batch can be (notebook 01, section 3).
#
# ### The same on an H100
#
# What the price lists of notebook [11](11_two_clocks.ipynb) say of memory (10 % of it is left for everything else):

# %% tags=["nbval-check-output"]
small, large = "llama-3-8b", "llama-3-70b"
for name, device, devices in ((small, "l4", 1), (small, "h100-sxm", 1), (large, "h100-sxm", 2), (large, "h100-sxm", 4)):
    gpu_model = lab.simulated(name, on=device, tp=devices)
    tokens = 16 * gpu_model.default_blocks(16)
    print(f"{gpu_model.name}: {gpu_model.kv_bytes_per_token / 1024:.0f} KiB per token, room for {tokens:,} tokens", end=" ")
    print(f"= {tokens // 2048} conversations of 2,048")

# %% [markdown]
# Look at the last two lines. The weights are paid once; what comes after them is room. Twice the GPUs are twelve times the pool, and
# a pool that is too small wastes the arithmetic next to it.

# %% [markdown]
# ## 2. How much should a request get?
#
# Before 2023 a request got **one contiguous region**, for its whole life, when it was admitted. How long? The paper builds three
# answers into Orca's scheduler, and so do we:
#
# | name | reserves | |
# |---|---|---|
# | `reserved:max` | the longest context the server allows, 2,048 tokens | always safe |
# | `reserved:pow2` | prompt + the next power of two of the answer's length | needs a good guess |
# | `reserved:oracle` | exactly what it will need | nobody can know that |
#
# **Paging** reserves nothing. Memory is cut into blocks of, say, 16 tokens; a request takes one more whenever its last one is full.

# %%
lab.predict(
    "05.p1",
    "Requests like ShareGPT's, on average 161 prompt and 338 output tokens; everybody waits from the start. "
    "With reserved:max, what share of the memory holds a token?",
    unit="%",
)

# %%
lab.predict("05.p2", "How many times more requests run at once with paging than with reserved:max?", unit="×")

# %% tags=["nbval-check-output"]
crowd = kv_use.sharegpt_paper_workload(requests=200, seed=0)
flat = lab.Priced(step=0.020, token=0.0002)
kinds = ("reserved:max", "reserved:pow2", "reserved:oracle", "paged")
room = dict(blocks=kv_use.SLOTS // 16, batching="continuous:256", chunking="whole")
memories = {kind: lab.run(crowd, flat, memory=kind, **room) for kind in kinds}
uses = {kind: kv_use.pool_use(report) for kind, report in memories.items()}
print("share of the slots:  tokens   later   never    free    requests at once  tokens/s  preemptions")
for kind, report in memories.items():
    print(f"{kind:18}" + "".join(f"{share:8.1%}" for share in uses[kind].values()), end=" ")
    print(f"{report.mean_batch:14.1f} {report.output_tokens_per_s:11.0f} {report.preemptions:9d}")

# %%
lab.reveal("05.p1", 100 * uses["reserved:max"]["tokens"], unit="%")

# %%
lab.reveal("05.p2", memories["paged"].mean_batch / memories["reserved:max"].mean_batch, unit="×")

# %% tags=["nbval-ignore-output"]
plots_memory.pool_use(uses)

# %% [markdown]
# Four fates of a slot, while requests wait outside:
#
# - **tokens**: it holds a key and a value. The only useful one.
# - **later**: it will be used by the request that reserved it, but not yet. Nobody else may have it meanwhile.
# - **never**: reserved, and the answer ends before it gets there (*internal fragmentation*).
# - **free**: nobody has it, and still nobody fits: the holes are too short (*external fragmentation*).
#
# Even the oracle leaves half of the memory without a token: it knows the lengths, but it pays for the end of an answer from the
# beginning, and it leaves holes.
#
# ### Our numbers and the paper's
#
# The paper found 20.4 % (max) to 38.2 % (oracle) of the memory holding tokens. The order and the size are the same; our last two
# reservations do better. Why?
#
# - The authors assume a *buddy allocator*, which rounds regions up and leaves more unusable holes. Ours is first fit.
# - Only the *means* of their lengths are published. The spread of ours is a guess, and the waste of `pow2` depends on it.
# - We count only while requests wait, and here they wait from the start. Theirs arrive one after the other.
#
# What it does not show: that paging makes *a step* faster. It makes room for more requests; the throughput comes from
# the larger batch. (The paper's own attention kernel was 20 to 26 % slower, because it has to follow the tables.)

# %% [markdown]
# ### The same thing, seen
#
# A small pool: 160 blocks, requests of very different length, all four kinds of memory at the same step.

# %% tags=["nbval-ignore-output"]
small = kv_use.crowd()
strips = pools(small, prices, 100, {kind: dict(memory=kind) for kind in kinds}, blocks=160, batching="continuous:16")
plots_memory.block_maps(strips, columns=40)

# %% tags=["nbval-check-output"]
exact, paged = strips[2], strips[3]
print(f"{exact.title}: {exact.free} blocks are free,", end=" ")
print(f"but the longest hole has {exact.longest_hole}; {exact.waiting} requests wait")
print(f"{paged.title}: {paged.free} blocks are free, in any order; {paged.waiting} requests wait")

# %% [markdown]
# ## 3. Block tables
#
# With paging, a request's blocks lie anywhere. Its **block table** lists them in order, and the attention kernel looks up
# every position there, as an operating system looks up the pages of a process.

# %% tags=["nbval-check-output"]
three = fixed_workload([20, 9, 33], [40, 60, 30])
tables = block_tables(three, prices, 25, blocks=16, batching="continuous:3")
for request, table in tables.items():
    print(f"request {request}: blocks {table}")

# %% [markdown]
# This is all there is to growing a table: how many blocks are missing, take them, append them.
# (The lines in the middle are for blocks that others hold too; section 6.)

# %%
lab.course.show(lab.build_engine(prices).memory.grow)

# %% [markdown]
# ## 4. How large should a block be?
#
# Only the **last** block of a request can be partly empty. So the waste is about half a block per request, and small blocks
# waste less:

# %% tags=["nbval-check-output"]
rows = []
for size in (1, 4, 16, 64, 256):
    report = lab.run(crowd, flat, **room | dict(block_size=size, blocks=kv_use.SLOTS // size))
    entries = max(-(-info.num_prompt // size) for info in report.trace.requests.values())
    waste, speed = round(100 * report.kv_waste, 2), round(report.output_tokens_per_s)
    rows.append({"block size": size, "waste (%)": waste, "tokens/s": speed})
    print(f"blocks of {size:3d}: {report.kv_waste:6.2%} of the held slots without a token,", end=" ")
    print(f"{report.output_tokens_per_s:.0f} tokens/s,", end=" ")
    print(f"the longest prompt needs {entries} table entries")

# %% tags=["nbval-ignore-output"]
plots_memory.block_sizes(rows)

# %% [markdown]
# Then why not blocks of one token? Because of what this clock does not price:
#
# - Every entry of a table must be looked up, and memory likes long reads. On GPUs small blocks leave the kernel's parallelism
#   unused. The paper recommends 16 to 128 tokens for ShareGPT-like lengths and took 16.
# - Copies to the host move block by block (section 5).
#
# Large blocks have another price besides: what two prompts have in common is shared in whole blocks only (notebook 06).

# %% [markdown]
# ## 5. When memory ends
#
# Nobody reserves, so the sum of all promises can exceed the pool. Then somebody must step back: **preemption**. The request that
# came last gives up its blocks and waits to be readmitted. What becomes of its keys and values?
#
# - **Recompute**: throw them away; later, compute prompt and answer so far again, in one prefill.
# - **Swap**: copy them to host memory; later, copy them back.
#
# Press **Start** and watch the yellow, thin stretches: requests that have been preempted.

# %% tags=["nbval-ignore-output"]
work = lab.chat_workload(requests=quick(8, 6), rate=20.0, seed=0, max_tokens=quick(28, 20))
seats = dict(batching=lab.Continuous(8))
runs = {
    "enough blocks": seats,
    "14 blocks, recompute": seats | dict(blocks=14),
    "14 blocks, swap": seats | dict(blocks=14, preemption="swap"),
}
session = lab.live.Session(work, model, runs, name="05")
session.dashboard()

# %% tags=["nbval-ignore-output"]
session.stop()

# %% [markdown]
# What to look for: which request is preempted, and what its line does when it comes back. With recompute there is a second stretch
# of prefill.
#
# Now counted, on the virtual clock:

# %% tags=["nbval-check-output"]
traffic = lab.chat_workload(requests=24, rate=3.0, seed=0)
tight = {
    "enough": lab.run(traffic, prices, **seats),
    "recompute": lab.run(traffic, prices, blocks=18, **seats),
    "swap": lab.run(traffic, prices, blocks=18, preemption="swap", **seats),
}
for name, report in tight.items():
    print(f"{name:10} {report.preemptions:3d} preemptions, {report.dropped_tokens:4d} tokens dropped,", end=" ")
    print(f"{report.recomputed_tokens:4d} computed again, {report.duration_s:.2f} s")

# %% tags=["nbval-ignore-output"]
plots_memory.free_blocks({name: tight[name] for name in ("enough", "recompute")})

# %% [markdown]
# This price list charges nothing for copies, so swapping only saves. What do both cost really? On this computer, per token:

# %%
lab.predict(
    "05.p3",
    "On this computer, how many times longer does it take to compute a token again than to copy its keys "
    "and values out and in?",
    options=["less than 1×: copying is dearer", "1 to 10×", "10 to 100×", "more than 100×"],
)

# %% tags=["nbval-ignore-output"]
costs = [swap_costs(model, context) for context in quick((64, 256, 512), (64, 256))]
for cost in costs:
    print(f"{cost.context:4d} tokens: computed again {cost.recompute_ms:6.3f} ms per token,", end=" ")
    print(f"swapped {cost.swap_ms:6.3f} ms", end=" ")
    print(f"({cost.copied_bytes / 1e9 / (cost.swap_ms / 1000):.1f} GB/s): {cost.ratio:.0f}×")

# %% tags=["nbval-ignore-output"]
middle = sorted(cost.ratio for cost in costs)[len(costs) // 2]
bins = {"less than 1×: copying is dearer": 1, "1 to 10×": 10, "10 to 100×": 100, "more than 100×": float("inf")}
lab.reveal("05.p3", next(name for name, upto in bins.items() if middle < upto), f"Measured: {middle:.0f}×.")

# %% [markdown]
# **Why swapping is nearly free here.** "Host" and "device" are the same memory: a swap is a copy within it. To compute the token
# again, every weight has to be multiplied once more:

# %% tags=["nbval-check-output"]
flops = model.step_flops(num_tokens=1, sum_of_context=128, num_sampled=0)
print(f"copying out and in moves {2 * model.kv_bytes_per_token / 1e3:.0f} kB per token,", end=" ")
print(f"each read once and written once;")
print(f"computing it again takes {flops / 1e6:.0f} million operations:", end=" ")
print(f"{flops / (2 * model.kv_bytes_per_token):.0f} per byte copied")

# %% tags=["nbval-ignore-output"]
options = {name: seats | dict(blocks=14, preemption=name) for name in ("recompute", "swap")}
both = lab.compare(work, model, {"enough": seats} | options)
for name, report in both.reports.items():
    print(f"{name:10} {report.preemptions} preemptions,", end=" ")
    print(f"{report.recomputed_tokens:4d} tokens computed again,", end=" ")
    print(f"{report.duration_s:5.2f} s (measured), same tokens: {both.same[name]}")
again = both["recompute"].recomputed_tokens
print(f"to expect from the table: {again} tokens × {costs[0].recompute_ms:.1f} ms", end=" ")
print(f"= {again * costs[0].recompute_ms / 1000:.1f} s more with recompute than with swap")

# %% [markdown]
# If your two times differ by something else, you have measured your computer's mood: a few preemptions are a small part of such a run. Waiting for
# blocks costs both of them far more than what becomes of the blocks.

# %% [markdown]
# ### A GPU behind a PCIe link
#
# There, host memory is on the other side of a slot. The price list `pcie.Accelerator` has OPT-13B's sizes, an A100's peaks and 32 GB/s
# for PCIe 4 (64 for PCIe 5), all from data sheets. Two numbers are *assumed*: a prefill reaches half of the peak, and each piece copied
# costs 10 µs beside its bytes. A block has 80 pieces, a key and a value in each of 40 layers.

# %%
lab.predict(
    "05.p4",
    "From which block size on is swapping 1,024 tokens over PCIe 4 cheaper than computing them again?",
    options=["1", "4", "16", "64", "never"],
)

# %% tags=["nbval-check-output"]
sizes = (1, 4, 16, 64)
print("context   compute again   swap, PCIe 4, with blocks of " + "".join(f"{size:9d}" for size in sizes))
for context in (64, 256, 1024, 4096):
    swaps = "".join(f"{1000 * pcie.swap_s(context, size):6.0f} ms" for size in sizes)
    print(f"{context:7d} {1000 * pcie.recompute_s(context):12.0f} ms {'':31}{swaps}")

# %%
lab.reveal("05.p4", str(pcie.crossover(1024)))

# %% tags=["nbval-ignore-output"]
plots_memory.crossover()

# %% [markdown]
# The same through the engine, on the virtual clock: 60 requests in a pool of 7,000 tokens, whatever the block size.

# %% tags=["nbval-check-output"]
many, gpu = kv_use.sharegpt_paper_workload(requests=60, seed=0), pcie.Accelerator()
for size in sizes:
    pool = dict(blocks=7000 // size, block_size=size, batching="continuous:64", chunking="budget:2048")
    again, swap = (lab.run(many, gpu, preemption=name, **pool) for name in ("recompute", "swap"))
    print(f"blocks of {size:2d}: {again.preemptions} preemptions;", end=" ")
    print(f"recompute {again.duration_s:.1f} s, swap {swap.duration_s:.1f} s")

# %% [markdown]
# - With small blocks the *number* of copies decides, not the bytes; recomputing does not care about blocks at all.
# - The paper found the same on real hardware: swapping suffers from small blocks, and both are comparable for blocks of 16 to 64.
# - What it does not show: your crossover. It moves with the two assumed numbers, with the link, and with the model: fewer
#   key/value heads make copies cheaper, not the arithmetic. And a GPU can copy while it computes; our clock adds both up.
# - Recompute needs no host memory and no second pool. That simplicity is why vLLM's present engine preempts by recomputing.

# %% [markdown]
# ## 6. One prompt, n samples
#
# Ask for four answers to one prompt, and the prompt's blocks are the same four times. Paging lets several tables list *one* block.
# When somebody wants to write into a block that others hold, the engine first copies it: **copy-on-write**.

# %%
lab.predict(
    "05.p5",
    "A prompt of 100 tokens, 4 samples of 24 tokens, blocks of 16. Four separate requests hold 32 blocks. "
    "And four samples of one request?",
    unit="blocks",
)

# %% tags=["nbval-check-output"]
one = lab.run(samples(100, 24, n=4), prices, blocks=64)
four = lab.run(fixed_workload([100] * 4, [24] * 4), prices, blocks=64)
print(f"four requests: {four.peak_blocks} blocks, {four.computed_tokens} tokens computed")
print(f"four samples:  {one.peak_blocks} blocks, {one.computed_tokens} tokens computed")

# %%
lab.reveal("05.p5", one.peak_blocks, unit="blocks")

# %% tags=["nbval-ignore-output"]
plots_memory.block_maps(block_maps(samples(100, 24, n=4), prices, [0, 1, 20], blocks=32), columns=32)

# %% [markdown]
# - After step 0 the prompt is computed and its blocks are shared (×4).
# - In step 1 each of them writes into the last, partly filled block: the further samples compute the prompt's *last* token themselves,
#   to draw a token of their own from it. So each gets a copy of that block; the last one to write keeps the original.
# - From then on each sample takes blocks of its own; what is full and common stays common.
#
# The real model, with a temperature, so that the samples differ:

# %% tags=["nbval-ignore-output"]
prompt = tuple(model.encode_chat("Name an animal and say what it likes to eat."))
drawn = lab.run(samples(prompt, quick(16, 8), n=3, temperature=0.9), model)
print(f"a prompt of {len(prompt)} tokens; at most {drawn.peak_blocks} blocks for three samples")
for number, tokens in enumerate(drawn.outputs.values()):
    print(f"sample {number}: {model.decode(tokens)!r}")

# %% [markdown]
# ## Exercises
#
# ### 05.1 Read a block table (fill in)
# A token is at `position` of its request (counted from 0). In which block is its key, and in which slot of that block?

# %%
def slot_of(position, table, block_size):
    """(block id, slot within the block) of a position."""
    ### BEGIN SOLUTION
    return table[position // block_size], position % block_size
    ### END SOLUTION

lab.check("05.1", slot_of)

# %% tags=["nbval-check-output"]
with lab.course.when_done("05.1"):
    for position in (0, 15, 16, 40):
        print(f"request 2, position {position}: block and slot {slot_of(position, tables[2], 16)}")

# %% [markdown]
# ### 05.2 Blocks of n samples (fill in)
# How many blocks do `n` samples of one prompt hold at most, when each makes `output` tokens?
# Remember two things: the prompt's last token is computed by each sample itself, and the last output token leaves no key.

# %%
def sample_blocks(prompt, output, n, block_size):
    """Blocks that n samples of one prompt hold just before they end."""
    ### BEGIN SOLUTION
    shared = (prompt - 1) // block_size
    all_of_one = -(-(prompt + output - 1) // block_size)
    return shared + n * (all_of_one - shared)
    ### END SOLUTION

lab.check("05.2", sample_blocks)

# %% tags=["nbval-check-output"]
with lab.course.when_done("05.2"):
    for n in (1, 4, 16):
        print(f"{n:2d} samples:", end=" ")
        print(f"{sample_blocks(100, 24, n, 16)} blocks instead of {n * sample_blocks(100, 24, 1, 16)}")

# %% [markdown]
# ### 05.3 The smallest pool (explore)
# `with_blocks(n)` runs eight requests, one every 0.6 s, in a pool of `n` blocks.
# **What is the smallest pool in which nobody is preempted?** It is smaller than the sum of what all of them need. Why?

# %% tags=["nbval-check-output"]
for blocks in (10, 20, 40):
    report = with_blocks(blocks)
    print(f"{blocks} blocks: {report.preemptions} preemptions,", end=" ")
    print(f"{report.recomputed_tokens} tokens again, {report.duration_s:.2f} s")

# %%
### BEGIN SOLUTION
### STUB: smallest = ...  # your answer: a number of blocks
smallest = next(blocks for blocks in range(8, 200) if with_blocks(blocks).preemptions == 0)
### END SOLUTION
lab.check("05.3", smallest)

# %% [markdown]
# ### 05.4 Preempted for nothing (break it)
# This engine preempts more often than it should. Its tokens are right, its books balance.

# %% tags=["nbval-check-output"]
six = fixed_workload([20] * 6, [30, 44, 25, 50, 38, 60])
healthy = lab.run(six, prices, blocks=18, batching="continuous:8")
suspect = broken_memory.run(six, prices, "05.4", blocks=18, batching="continuous:8")
for name, report in {"healthy": healthy, "suspect": suspect}.items():
    print(f"{name}: {report.preemptions} preemptions,", end=" ")
    print(f"{report.recomputed_tokens} tokens computed again, {report.duration_s:.2f} s")

# %% tags=["nbval-ignore-output"]
plots_memory.free_blocks({"healthy": healthy, "suspect": suspect})

# %% [markdown]
# Write the rule that finds it. For each step in which somebody was preempted (an event of `kind` "preempted"), look at the step *before*:
#
# - `before.free` blocks were free.
# - Each row of `before` whose request goes on (no event "finished" or "preempted" there) now holds `row.start + row.num_tokens` tokens.
#   It needs a new block for its next token only if these fill its blocks exactly.
#
# Return the indices of the steps in which the free blocks would have been enough.

# %%
def needless(trace, block_size):
    """Indices of the steps that preempted although nobody had to yield."""
    ### BEGIN SOLUTION
    found, steps = [], list(trace)
    for before, step in zip(steps, steps[1:]):
        gone = {event.request for event in before.events if event.kind in ("finished", "preempted")}
        rows = [row for row in before.rows if row.request not in gone]
        wanted = sum((row.start + row.num_tokens) % block_size == 0 for row in rows)
        if any(event.kind == "preempted" for event in step.events) and wanted <= before.free:
            found.append(step.index)
    return found
    ### END SOLUTION

lab.check("05.4", needless)

# %% tags=["nbval-check-output"]
with lab.course.when_done("05.4"):
    print("healthy:", needless(healthy.trace, 16))
    for index in needless(suspect.trace, 16):
        before = suspect.trace[index - 1]
        lengths = [row.start + row.num_tokens for row in before.rows]
        print(f"suspect, step {index}: {before.free} blocks free before; lengths {lengths}")

# %% [markdown]
# <details><summary>The bug, when you have found the steps</summary>
#
# Before each token it asks for a free block, also when the request's last block still has room. So the engine preempts as soon as
# the pool is exactly full, although everybody could go on for a while. See the sources.
# </details>

# %% [markdown]
# ## In real engines
#
# | engine | memory for keys and values |
# |---|---|
# | vLLM | `--gpu-memory-utilization` sets the size of the pool, `--block-size` the block; a preempted request is recomputed |
# | SGLang | says *page*: `--page-size`; `--mem-fraction-static` for weights and pool together. Its word for preempting is *retract*: `--schedule-conservativeness` makes it rarer |
# | TensorRT-LLM | `KvCacheConfig`: `tokens_per_block`, `free_gpu_memory_fraction`, `host_cache_size` for blocks kept on the host. `CapacitySchedulerPolicy.GUARANTEED_NO_EVICT` admits only what can run to its end; `MAX_UTILIZATION` admits more and pauses some |
# | transformers | one growing tensor per layer in `generate`; blocks in its continuous batching |
#
# Many samples of one prompt: `n` in the OpenAI-compatible request of vLLM and SGLang.

# %% [markdown]
# ## Summary
#
# - One token keeps a fixed number of bytes in every layer; memory, not arithmetic, limits how many requests run at once.
# - Reserving wastes in three ways: for later, for never, and in holes. Paging leaves only the end of each last block.
# - Whoever does not reserve may run out: then somebody is preempted, and is recomputed or swapped.
# - On one CPU swapping is nearly free, since host and device are the same memory. Behind a PCIe link, small blocks make it dear.
# - A block can belong to several: n samples share their prompt, copy-on-write.
#
# Next: notebook [06](06_prefix_caching.ipynb) shares blocks between requests that know nothing of each other.
#
# ## Sources
#
# - Kwon et al., *Efficient Memory Management for Large Language Model Serving with PagedAttention*, SOSP 2023,
#   [arXiv 2309.06180](https://arxiv.org/abs/2309.06180): 20.4 to 38.2 %, 15.7K slots, mean lengths, block sizes, the slower kernel, swapping
#   against recomputing.
# - Exercise 05.4: `can_append_slot` in [microsoft/sarathi-serve](https://github.com/microsoft/sarathi-serve).
# - Prices: data sheet of the [NVIDIA A100](https://www.nvidia.com/en-us/data-center/a100/); PCIe 4 and 5 with 16 lanes have 32 and 64 GB/s per
#   direction.
# - Preemption by recomputing: [vLLM, optimization and tuning](https://docs.vllm.ai/en/v0.9.1/configuration/optimization.html).
# - TensorRT-LLM: [KvCacheConfig](https://nvidia.github.io/TensorRT-LLM/llm-api/reference/KvCacheConfig.html),
#   [its scheduler](https://nvidia.github.io/TensorRT-LLM/features/paged-attention-ifb-scheduler.html).
