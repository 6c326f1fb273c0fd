# %% [markdown]
# # Continuous scheduling
#
# **Question.** A GPU can have several kernels in flight at once. Ten users wait for their next token.
# Why press all ten into one batch, when each could have a stream of its own, and nobody would wait for anybody?
#
# A textbook (Fregly 2025, chapter 16) calls this *continuous scheduling*: the GPU as an operating system, with many small
# decode kernels on separate CUDA streams, and a device that is always busy. You will run it twice: on two cores of this computer,
# where steps really overlap, and simulated on an H100. Then prefill *beside* decode, where the idea is at its best, with
# streams and with a partition of the device. The same tokens come out each time; only time and traffic can differ.
#
# About 50 minutes. Notebooks [01](01_one_request.ipynb) and [04](04_continuous_batching.ipynb) come first;
# [07](07_chunked_prefill.ipynb) helps with section 4.

# %% tags=["nbval-ignore-output"]
import lab
from lab.concurrent import LaneDriver
from lab.course import plots_streams, quick
from lab.course.several_lanes import CLAIMS, WISHES, chat, clear_crowd, crowd, documents, flights, run_lanes
from lab.course.stalls import longest_gap, soon, stall_workload
from lab.experiments.streams import streams, together, weights_per_token
from lab.lanes import Decode
from lab.live.show import as_text

model = lab.load_model()
h100 = lab.simulated("llama-3-8b", on="h100-sxm")

# %% [markdown]
# In this lab a *lane* is a group of requests whose steps are in flight beside those of other lanes. One engine, one queue
# and one memory feed them all:
#
# | `lanes=` | who computes what |
# |---|---|
# | `"one"` | everybody in one batch: what you know |
# | `"split:2"` | two lanes, each with half of the requests, for life |
# | `"phases"` | prompts in one lane; whoever decodes moves to the other |
# | `"phases:0.2"` | the same, and decodes may use 20 % of the arithmetic, prompts the other 80 % |
#
# A lane says whom it takes. This is the one for decodes in `"phases"`, and below it the loop that keeps every lane busy:

# %%
lab.course.show(Decode)

# %%
lab.course.show(LaneDriver.tick, "for index, lane")

# %% [markdown]
# ## 1. Two streams of half the batch, measured here
#
# Eight requests decode. Either one batch of eight on both cores, or two lanes of four with **one core each**, in two
# threads whose steps overlap. Nobody in one lane ever waits for the other. In the tables *ITL* is the inter-token latency, the
# gap between two tokens of one answer; *p50* is the median of a column, *p95* what 95 % of the values stay below.

# %%
lab.predict(
    "10.p1",
    "Two lanes of four against one batch of eight: by which factor do the output tokens per second change?",
    options=["2× or more", "1.1 to 2×", "about the same", "0.5 to 0.9×", "less than 0.5×"],
)

# %%
lab.predict(
    "10.p2",
    "And the bytes of weights that are read for each output token?",
    options=["half", "the same", "twice as many"],
)

# %% tags=["nbval-ignore-output"]
work = clear_crowd(8, quick(32, 12))  # 32 tokens each; 12 where LAB_QUICK=1 shortens the course for its tests
rounds = [streams(work, model, ("one", "split:2"), batching="continuous:8") for _ in range(quick(2, 1))]
shown = ("lanes", "output tokens/s", "ITL p50 (s)", "busy", "in flight together", "steps", "weights MB per token", "same tokens")
print(as_text([{name: row[name] for name in shown} for row in rounds[-1].rows()]))

# %% tags=["nbval-ignore-output"]
one, two = (max((turn[way] for turn in rounds), key=lambda run: run.output_tokens_per_s) for way in ("one", "split:2"))
ratio, gap = two.output_tokens_per_s / one.output_tokens_per_s, two.itl_s.p50 / one.itl_s.p50
print(f"two lanes: {ratio:.2f}× the tokens per second, gaps between tokens {gap:.2f}× as long (the quicker of two turns)")
print(f"steps in flight at the same time: {together(rounds[-1]['split:2']):.0%} of the time, so they really overlap")
print("verdict: two lanes are", "slower" if ratio < 0.9 else "faster" if ratio > 1.1 else "about as fast", "than one batch here")

# %% tags=["nbval-ignore-output"]
limits = {"less than 0.5×": 0.5, "0.5 to 0.9×": 0.9, "about the same": 1.1, "1.1 to 2×": 2, "2× or more": float("inf")}
lab.reveal("10.p1", next(name for name, most in limits.items() if ratio < most), f"Measured: {ratio:.2f}×.")

# %% tags=["nbval-ignore-output"]
lanes = rounds[-1]
read = {name: weights_per_token(report, lanes.weight_bytes) for name, report in lanes.comparison.reports.items()}
print(f"weights read per output token: {read['one'] / 1e6:.0f} MB in one batch, {read['split:2'] / 1e6:.0f} MB in two lanes")
lab.reveal("10.p2", "twice as many" if read["split:2"] > 1.5 * read["one"] else "the same")

# %% tags=["nbval-ignore-output"]
plots_streams.in_flight(lanes.comparison.reports, title="One batch and two lanes: every step")

# %% [markdown]
# Look at three columns of the table together. *Busy* is close to 1 in both: a step is always in flight, with lanes even
# two. *Steps* have doubled. And the tokens are the same. So the second lane kept the computer busy with **reading the same
# weights again**.
#
# ### What this does not show
# Two cores are not two devices: they share one way to memory, as streams of a GPU do. And a thread on one core is not a CUDA
# stream: our lanes cannot use each other's core when one has nothing to do, streams can. A computer that does other things
# meanwhile blurs the factor; the two runs take turns, and the counts beside them do not depend on the clock.

# %% [markdown]
# ## 2. Why: weights are read once per step
#
# A decode step reads every weight once, whether it is for one request or for fifty (notebook 01). Split a batch into
# more steps, and nothing of that is shared any more:

# %% tags=["nbval-check-output"]
weights = model.step_bytes(num_tokens=0, resident_tokens=0)  # all matrices, nothing else
print("8 requests in   steps per token   weights read per output token (MB)   operations per byte of weights")
for lanes_used in (1, 2, 4, 8):
    per_token = weights * lanes_used / 8
    done = model.step_flops(num_tokens=8 // lanes_used, sum_of_context=0, num_sampled=8 // lanes_used)
    print(f"{lanes_used} lane{'s'[: lanes_used > 1]:12} {lanes_used:12} {per_token / 1e6:32.1f} {done / weights:35.1f}")

# %% [markdown]
# As long as a step waits for memory, the last column is what counts: operations that each byte is used for. Batching raises
# it, streams lower it.
#
# The reason given for separate streams is that ten contexts have ten different lengths, so that their decodes cannot be
# one matrix product. Only attention sees lengths. In all other layers each request is **one row** of one matrix,
# whatever its length, and attention kernels take rows of different lengths in one launch. Orca called it *selective
# batching* in 2022; the table in notebook 04 rests on it, and so does the loop you have just run.

# %% [markdown]
# ## 3. On an H100, simulated
#
# On this small computer one might blame the cores. So: Llama-3-8B on an H100, priced. Steps in flight together share the
# device: each runs at full speed while the two together need no more than the device has; otherwise both slow down in
# proportion.
# That is **generous to streams**: real ones also wait for a free SM (streaming multiprocessor:
# one of the GPU's many cores), and disturb each other in caches and memory.
#
# The ten users first:

# %%
lab.predict(
    "10.p3",
    "Ten users, one stream each, against one batch of ten: how many times the tokens per second?",
    options=["about 10×", "about 2×", "about the same", "about a half", "about an eighth"],
)

# %% tags=["nbval-check-output"]
ten = streams(crowd(10), h100, ("one", "split:2", "split:10"), batching="continuous:10")
print(as_text([{name: row[name] for name in shown if name != "same tokens"} for row in ten.rows()]))

# %%
share = ten["split:10"].output_tokens_per_s / ten["one"].output_tokens_per_s
lab.reveal("10.p3", "about an eighth" if share < 0.2 else "about a half", f"{share:.2f}×: each reads all weights alone.")

# %% [markdown]
# All three keep the device busy for 100 % of the time. "Always busy" is no measure of work.
#
# Is there any size at which two streams win?

# %%
lab.predict(
    "10.p4",
    "Decodes only, 4 to 512 requests: from which size on are two streams faster than one batch, in this generous simulation?",
    options=["4", "64", "256", "512", "never"],
)

# %% tags=["nbval-check-output"]
sizes, ways = (4, 16, 64, 128, 256, 512), ("one", "split:2", "split:4")
ratios_by_size, used = [], []
for size in sizes:
    options = dict(batching=f"continuous:{size}", chunking="budget:8192")
    runs = {way: lab.run(crowd(size), h100, lanes=way, **options) for way in ways}
    alone = runs["one"].output_tokens_per_s
    ratios_by_size.append({"requests": size} | {way: round(r.output_tokens_per_s / alone, 2) for way, r in runs.items()})
    shares = {f"{way} {of}": f"{value:.0%}" for way, r in runs.items() for of, value in (("MFU", r.mfu), ("MBU", r.mbu))}
    used.append({"requests": size, "one: tokens/s": round(alone)} | shares)
print(as_text(ratios_by_size))
print(as_text(used))

# %%
first = next((row["requests"] for row in ratios_by_size if row["split:2"] > 1), "never")
lab.reveal("10.p4", str(first), "Ratios of 1 and below: one batch is at least as fast.")

# %% tags=["nbval-ignore-output"]
plots_streams.over_batch([{name: v for name, v in row.items() if name != "one"} for row in ratios_by_size])

# %% [markdown]
# (*MFU*, *MBU*: the shares of peak arithmetic and peak bandwidth that are used.)
#
# - **Small batches**: one batch is held up by memory (MBU) and has arithmetic to spare. A second stream wants more of the
#   very thing that is short. Four streams are worse than two.
# - **Very large batches**: neither is near its peak. Matrix products wait for arithmetic, attention waits for memory, and in
#   one stream they take turns. A second stream *out of step* with the first can use what it leaves idle. That is the
#   idea of NanoFlow, which splits batches on purpose and places the parts operation by operation.
#
# ### What this does not show
# Whether a real GPU gets there. The simulated gain at 512 is the **most** that sharing could bring. And 512 requests need room
# for their keys and values; with long contexts memory is full before.

# %% [markdown]
# ## 4. Prefill beside decode
#
# A prompt wants arithmetic, decodes want bandwidth. These two do *not* want the same thing. Three ways to do both:
#
# - **whole prompts**: a step for prompts, then steps for decodes; readers wait meanwhile.
# - **chunked**: a chunk of a prompt rides along in a step with all decodes (notebook 07); the weights are read once for both.
# - **phases**: a lane for prompts and one for decodes, in flight together; the weights are read for each.
#
# Two kinds of traffic: *documents* (1,000 to 6,000 tokens to read, 8 per second) and *chat* (16 to 128 tokens, 60 per second).

# %%
lab.predict(
    "10.p5",
    "Documents: which way gives the shortest gaps between tokens (ITL, 95th percentile)?",
    options=["whole prompts", "chunks of 2,048", "chunks of 512", "phases"],
)

# %%
lab.predict("10.p6", "Chat: and which there?", options=["whole prompts", "chunks of 2,048", "phases"])

# %% tags=["nbval-check-output"]
beside = {
    "whole prompts": dict(chunking="whole"),
    "chunks of 2,048": dict(chunking="budget:2048"),
    "chunks of 512": dict(chunking="budget:512"),
    "phases": dict(chunking="whole", lanes="phases"),
}
traffics = {"documents": documents(), "chat": chat()}
served = {
    name: {way: lab.run(traffic, h100, batching="continuous:128", **how) for way, how in beside.items()}
    for name, traffic in traffics.items()
}
print({name: [round(report.output_tokens_per_s) for report in runs.values()] for name, runs in served.items()})

# %% tags=["nbval-check-output"]
tables = {}
for name, runs in served.items():
    tables[name] = []
    for way, report in runs.items():
        row = {"way": way, "tokens/s": report.output_tokens_per_s, "TTFT p50 (ms)": 1e3 * report.ttft_s.p50}
        row |= {"ITL p95 (ms)": 1e3 * report.itl_s.p95, "longest gap (ms)": 1e3 * longest_gap(report)}
        weights_read = weights_per_token(report, h100.weight_bytes) / 1e6
        tables[name].append(row | {"weights MB/token": round(weights_read), "MBU": report.mbu, "MFU": report.mfu})
    print(name, as_text(tables[name]), sep="\n")

# %%
best = {name: min(table, key=lambda row: row["ITL p95 (ms)"])["way"] for name, table in tables.items()}
lab.reveal("10.p5", best["documents"], "A chunk makes a step long; a lane of its own does not.")

# %%
lab.reveal("10.p6", best["chat"], "Short prompts fit into the step that runs anyway (chunks of 512 do as well).")

# %% tags=["nbval-ignore-output"]
plots_streams.trade(tables, "TTFT p50 (ms)", "longest gap (ms)")

# %% [markdown]
# - **Documents: phases win** in gaps and in tokens per second, in this generous simulation (whole prompts have the first token a
#   little earlier, and stop everybody else). The price is in the weights column: per token they are read 2.5 times as often as with
#   whole prompts. It is paid with bandwidth that lay idle (MBU).
# - Chunks have to choose: small ones keep gaps short and make the first token late, large ones the other way round.
# - **Chat: chunking beats phases** in all times and in tokens per second. A prompt of a hundred tokens is no burden for a step
#   that is waiting for memory anyway. In a lane of its own it makes all weights come a second time, and slows the decodes
#   beside it.
# - Whole prompts are not as good for the readers of documents as their ITL p95 looks: nineteen gaps in twenty are short, and
#   the longest is nearly two seconds. A percentile can hide a stall; the picture shows the longest gap.
#
# How much may sharing really cost before the advantage is gone?

# %% tags=["nbval-check-output"]
docs = served["documents"]
without = max(report.output_tokens_per_s for way, report in docs.items() if way != "phases")
margin = docs["phases"].output_tokens_per_s / without
print(f"documents: phases give {margin:.2f}× the tokens/s of the best way without lanes;")
print(f"if steps that share the device lose more than about {1 - 1 / margin:.0%} to each other, no throughput is gained")

# %% [markdown]
# ### The same here, measured
#
# Three readers have some eight tokens each when a prompt of some hundred tokens comes in. Two cores: `"phases"` gives one core to the prompts and
# one to the decodes, always, even when there is nothing to compute for one of them.

# %%
lab.predict(
    "10.p7",
    "On two cores, compared with whole prompts: what do phases do to the longest gap and to tokens per second?",
    options=["shorter gap, more tokens/s", "shorter gap, fewer tokens/s", "longer gap"],
)

# %% tags=["nbval-ignore-output"]
stall = stall_workload(long=quick(400, 200), readers=3, output=quick(40, 24), arrival=soon(model), ids=True)
three = {
    "whole prompts": dict(chunking="whole"),
    "chunks of 64": dict(chunking="budget:64"),
    "phases": dict(chunking="whole", lanes="phases"),
}
here = lab.compare(stall, model, three, batching="continuous:8")
for name, report in here.reports.items():
    print(f"{name:14} {report.output_tokens_per_s:6.1f} tokens/s, longest gap {1e3 * longest_gap(report):5.0f} ms,", end=" ")
    print(f"document's first token after {report.times[3].ttft:.2f} s; same tokens: {here.same[name].verdict}")

# %% tags=["nbval-ignore-output"]
whole, phases = here["whole prompts"], here["phases"]
shorter, faster = longest_gap(phases) < longest_gap(whole), phases.output_tokens_per_s > whole.output_tokens_per_s
told = f"shorter gap, {'more' if faster else 'fewer'} tokens/s" if shorter else "longer gap"
lab.reveal("10.p7", told, f"{longest_gap(phases) / longest_gap(whole):.2f}× the longest gap.")

# %% tags=["nbval-ignore-output"]
plots_streams.in_flight(here.reports, title="Whole prompts, chunks and phases on two cores")

# %% [markdown]
# In the picture: with whole prompts one long bar, and nothing beside it. With chunks several bars of middling length. With
# phases the long bar is longer (one core instead of two, so the document's own first token is later), and the decodes go on
# in the other lane.
#
# Mind the end of that run: when the document has been read, the decodes go on with one core, and the other does nothing at all.
# That is the weakness of every *fixed* partition.

# %% [markdown]
# ## 5. Partitions
#
# A GPU's arithmetic is divided into many streaming multiprocessors (SMs). Streams do not divide them: a large prefill kernel
# occupies them all, and a decode kernel waits until some are free. A partition gives each lane SMs of its own. Bandwidth stays
# shared. `"phases:F"` confines decodes to the fraction F, prompts to the rest:

# %% tags=["nbval-check-output"]
confined, splits = [], (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
for fraction in splits:
    report = lab.run(documents(), h100, batching="continuous:128", chunking="whole", lanes=f"phases:{fraction}")
    row = {"for decodes": fraction, "TTFT p50 (ms)": 1e3 * report.ttft_s.p50, "ITL p95 (ms)": 1e3 * report.itl_s.p95}
    confined.append(row | {"tokens/s": report.output_tokens_per_s, "together": f"{together(report):.0%}"})
print(as_text(confined))

# %% tags=["nbval-ignore-output"]
plots_streams.fractions(confined, "for decodes", ("TTFT p50 (ms)", "ITL p95 (ms)"))

# %% [markdown]
# Decodes need little arithmetic: they wait for memory. A larger share for them is missing in the prefill lane: first tokens come
# later and later, gaps become a little shorter, and from about one half on both get worse. In a simulation where sharing is
# free, a partition mostly takes something away. It earns its keep where sharing is *not* free: it bounds what a prefill can do
# to a decode. And the border should move with the load, which is what the systems below do.
#
# Left out here, to the advantage of small shares: a few SMs cannot draw the whole bandwidth of a GPU.

# %% [markdown]
# ## 6. What a GPU's streams and partitions promise
#
# | | what it is | what it is not |
# |---|---|---|
# | stream | kernels in order; those of different streams *may* run at the same time | a share of the device: no SM belongs to a stream |
# | stream priority | a hint: blocks of the higher are started first when both wait | no interruption: what runs goes on to its end |
# | green context | a context with SMs of its own, and streams within it | no bandwidth, no cache of its own |
# | fused kernel | prefill and decode on the *same* SM in one launch (POD-Attention) | a scheduler's business: a new kernel is needed |
#
# In this lab, with a CUDA device, lanes are streams, the first with the higher priority, and `"phases:F"` asks PyTorch for
# green contexts, where it has them.
#
# What published systems report, each in its authors' own set-up:
#
# | system | idea | reported |
# |---|---|---|
# | NanoFlow (OSDI 2025) | splits a batch into nano-batches so that arithmetic, memory and network overlap | 1.91× throughput |
# | POD-Attention (ASPLOS 2025) | one kernel for the attention of prefill and decode | attention up to 59 % faster, 28 % on average |
# | Bullet (2025) | prefill and decode concurrently, SMs given out dynamically | 1.26× throughput on average, up to 1.55× |
# | MuxWise (2025) | prefill and decode side by side within a GPU | 2.20× peak throughput under latency limits on average, up to 3.06× |
# | Nexus (2025) | splits one GPU between the phases, dynamically | up to 2.2× throughput, 20× shorter TTFT, 2.5× shorter TBT than vLLM |
#
# Not one of them gives every user a stream. They put *unlike* work side by side, and divide the device on purpose.
# Nexus adds that bandwidth becomes the bottleneck when both phases run, which our simulation leaves out only in part.

# %% [markdown]
# ## Exercises
#
# ### 10.1 Weights read per output token (fill in)
# `trace` is a run. Every step reads all `weight_bytes` once. A row of a step has `sampled` (an output token came out).
# Return the bytes of weights that were read per output token.

# %%
def read_per_token(trace, weight_bytes):
    """Bytes of weights read for each output token of the run."""
    ### BEGIN SOLUTION
    tokens = sum(row.sampled for step in trace for row in step.rows)
    return len(trace) * weight_bytes / tokens
    ### END SOLUTION

lab.check("10.1", read_per_token)

# %% tags=["nbval-check-output"]
with lab.course.when_done("10.1"):
    for name in ("one", "split:2", "split:10"):
        yours = read_per_token(ten[name].trace, h100.weight_bytes)
        print(f"{name:9} yours {yours / 1e9:5.2f} GB, the lab's {weights_per_token(ten[name], h100.weight_bytes) / 1e9:5.2f} GB")

# %% [markdown]
# ### 10.2 Is anything in flight together? (fill in)
# "Concurrent" should be proved, not assumed. `flights` is a list of (start, end) pairs, in any order. For how many seconds
# were **at least two** in the air? Three at once do not count twice.

# %%
def time_together(flights):
    """Seconds in which two or more of the flights overlap."""
    ### BEGIN SOLUTION
    edges = sorted([(start, 1) for start, _ in flights] + [(end, -1) for _, end in flights])
    total, last, count = 0.0, 0.0, 0
    for time, change in edges:
        if count > 1:
            total += time - last
        count, last = count + change, time
    return total
    ### END SOLUTION

lab.check("10.2", time_together)

# %% tags=["nbval-check-output"]
with lab.course.when_done("10.2"):
    for name, report in served["documents"].items():
        print(f"{name:16} {time_together(flights(report.trace)):6.2f} s of {report.duration_s:.2f} s with two in flight")

# %% [markdown]
# ### 10.3 Lanes for three kinds of traffic (explore)
# `WISHES` says what the users of each kind want, simulated on the H100 with chunks of at most 2,048 tokens. The *crowd* are
# 512 requests at once. Choose `lanes` for each; for some, one lane may be best.

# %% tags=["nbval-check-output"]
for mix, wanted in WISHES.items():
    print(f"{mix:10} {wanted}")

# %%
### BEGIN SOLUTION
### STUB: lanes_for = ...  # your answer: {"documents": "…", "chat": "…", "crowd": "…"}
lanes_for = {"documents": "phases:0.35", "chat": "one", "crowd": "split:2"}
### END SOLUTION
lab.check("10.3", lanes_for)

# %% [markdown]
# ### 10.4 A lane with seats of its own (build)
# Write a lane that holds at most `seats` requests. All lanes of a run share the dictionary `homes`.
#
# - `admitted(request)` is called when this lane has admitted a request: write its home into `homes`, under `request.id`.
# - `takes(request)`: is this lane its home?
# - `slots(slots, running)`: `slots` more may be admitted into the engine, where `running` are all that run now, in all lanes.
#   How many of them may *this* lane admit?

# %%
class Seats:
    """A lane with at most `seats` requests; `homes` maps a request's id to the name of its lane."""
    fraction = 1.0  # of the arithmetic: all
    def __init__(self, name, seats, homes):
        self.name, self.seats, self.homes = name, seats, homes
    def takes(self, request):
        ### BEGIN SOLUTION
        return self.homes.get(request.id) == self.name
        ### END SOLUTION
    def slots(self, slots, running):
        ### BEGIN SOLUTION
        return max(0, min(slots, self.seats - sum(self.takes(request) for request in running)))
        ### END SOLUTION
    def admitted(self, request):
        ### BEGIN SOLUTION
        self.homes[request.id] = self.name
        ### END SOLUTION

# %%
lab.check("10.4", Seats)

# %% tags=["nbval-check-output"]
with lab.course.when_done("10.4"):
    for seats in ((16,), (8, 8), (2, 14)):
        homes = {}
        mine = [Seats(f"lane {place}", number, homes) for place, number in enumerate(seats)]
        report = run_lanes(crowd(16), h100, mine, batching="continuous:16")
        print(f"seats {str(seats):8} {report.output_tokens_per_s:7.1f} tokens/s, {together(report):.0%} of the time together")

# %% [markdown]
# ### 10.5 Which claims are wrong? (judge)
# You have seen or read enough to judge each of these. Return the **set of letters of the wrong ones**.

# %% tags=["nbval-check-output"]
for letter, (claim, _) in CLAIMS.items():
    print(f"{letter}  {claim}")

# %%
### BEGIN SOLUTION
### STUB: wrong_claims = ...  # your answer, for example {"A", "B"}
wrong_claims = {"A", "C", "D", "F"}
### END SOLUTION
lab.check("10.5", wrong_claims)

# %% [markdown]
# ## In real engines
#
# | engine | several steps at once |
# |---|---|
# | vLLM | one forward pass per step for all requests. *Dual batch overlap* (`--enable-dbo`) splits a batch in two so that the all-to-all of a mixture-of-experts model overlaps with computing: it hides a **network**, and is for data with expert parallelism only |
# | SGLang | `--enable-pdmux`, *PD-Multiplexing*: prefill and decode in green contexts of one GPU; `--sm-group-num` groups of SMs. Off unless asked for |
# | FlashInfer | `PODWithPagedKVCacheWrapper`: a prefill and a batch of decodes in one launch; helpers for green contexts |
#
# The name *continuous scheduling*, in the sense of a stream per user, we looked for in vLLM's documentation, issues and
# code, and did not find. That proves little; what you measured proves more.

# %% [markdown]
# ## Summary: the verdict
#
# - **A stream for every user: no.** Decodes are short of bandwidth, and every stream reads all weights again. Two streams of
#   half the batch read twice as much per token, ten streams ten times.
# - "Always busy" holds for all of them. It counts time with something in flight, not work done.
# - **Two streams of very large batches: perhaps**, where neither arithmetic nor bandwidth is at its limit. An upper bound here;
#   NanoFlow needed kernels placed one by one to collect it.
# - **Prefill beside decode: yes, for long prompts**, when the device is shared well. For short prompts a chunk in the decode
#   step is better, and needs no second reading of the weights.
# - Streams do not share a device fairly, priorities interrupt nothing, partitions waste what they do not use. Good systems
#   partition on purpose, and move the border with the load.
#
# Next: [11 Two clocks](11_two_clocks.ipynb), how far the simulations of this notebook can be trusted.
#
# ## Sources
#
# - The idea: Fregly, *AI Systems Performance Engineering*, O'Reilly 2025, chapter 16.
# - Selective batching: Yu et al., *Orca*, OSDI 2022.
# - Zhu et al., *NanoFlow*, OSDI 2025, [arXiv 2408.12757](https://arxiv.org/abs/2408.12757).
# - Kamath et al., *POD-Attention*, ASPLOS 2025, [arXiv 2410.18038](https://arxiv.org/abs/2410.18038);
#   [FlashInfer, pod](https://docs.flashinfer.ai/api/pod.html).
# - Lin et al., *Bullet*, [arXiv 2504.19516](https://arxiv.org/abs/2504.19516); *MuxWise*,
#   [arXiv 2504.14489](https://arxiv.org/abs/2504.14489); Shi et al., *Nexus*, [arXiv 2507.06608](https://arxiv.org/abs/2507.06608):
#   numbers from their abstracts.
# - Streams, priorities: [CUDA runtime, stream management](https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__STREAM.html);
#   green contexts: [CUDA programming guide](https://docs.nvidia.com/cuda/cuda-programming-guide/04-special-topics/green-contexts.html),
#   [PyTorch](https://docs.pytorch.org/docs/2.12/generated/torch.cuda.green_contexts.GreenContext.html) (beta).
# - [vLLM, dual batch overlap](https://docs.vllm.ai/en/stable/design/dbo/);
#   [SGLang, server arguments](https://docs.sglang.ai/advanced_features/server_arguments.html).
