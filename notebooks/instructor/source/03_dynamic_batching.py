# %% [markdown]
# # Dynamic batching
#
# **Question.** A static batch may wait for ever (notebook [02](02_static_batching.ipynb)). So give it a timer:
# start when the batch is full **or** when the oldest request has waited 2 ms, whichever comes first.
# Does everybody then wait 2 ms at most? And is the timer worth having?
#
# The first answer is no, although you will read the opposite. The second is a real open question, so you will settle it as an
# experiment: nine rules, three kinds of traffic, and a verdict computed from your own numbers.
#
# About 60 minutes. Notebook [02](02_static_batching.ipynb) comes first.

# %% tags=["nbval-ignore-output"]
from statistics import mean

import lab
from lab.batching.control.fixed import greedy_latency
from lab.batching.served import batches
from lab.course import broken_batching, plots, plots_batching, quick
from lab.course.delays import best_timer, serve, verdict
from lab.course.exercises.nb03 import longest_wait, with_and_without
from lab.course.starting import StartRule
from lab.course.traffic import bursty, calm, clumped, one_pass
from lab.course.waiting import busy_at, worst_wait
from lab.errors import BadPolicy

model = lab.load_model()

# %% [markdown]
# ## 1. The rule
#
# Six requests for a model that makes **one pass** per request, such as an embedding or a classifier. Timers of a few
# milliseconds come from there. A step costs 20 ms plus 0.2 ms per token, and each request has 10 tokens.

# %% tags=["nbval-check-output"]
prices = lab.Priced(step=0.020, token=0.0002)
six = lab.run(one_pass([0.0, 0.0009, 0.0015, 0.0022, 0.060, 0.0605]), prices, batching=lab.Dynamic(3, 0.002))
for batch in batches(six.trace):
    came = ", ".join(f"{1000 * six.times[i].arrival:.1f}" for i in sorted(batch.requests))
    print(f"{1000 * batch.start:5.1f} ms: a batch of {batch.size} takes {1000 * batch.seconds:.0f} ms;", end=" ")
    print(f"its requests came at {came} ms, the oldest waited {1000 * batch.waited:.1f} ms")

# %% [markdown]
# The first batch starts because it is **full**, the last because its **timer** has fired.
# The one in between starts for neither reason: it had to wait until the first one was through.
#
# Here is the rule. `wait_until` comes from a *controller*; the simplest is a fixed delay after the oldest arrival.

# %%
lab.course.show(lab.Dynamic.admit)

# %%
lab.course.show(lab.Fixed.limits)

# %% [markdown]
# Read the first `if` of `admit` again: *while a batch runs, nobody starts.* The timer is not even looked at.
# That one line decides the next section.

# %% [markdown]
# ## 2. The promise
#
# "With a window of 2 ms, queueing never exceeds 2 ms." Let us see.

# %%
lab.predict(
    "03.p1",
    "40 requests per second, batches of up to 8, a delay of 2 ms. What share of the requests waits longer than 2 ms?",
    unit="%",
)

# %% tags=["nbval-check-output"]
delay = 0.002
run = lab.run(one_pass(calm(40, requests=200)), prices, batching=lab.Dynamic(8, delay))
late = [times for times in run.times.values() if times.admitted > times.arrival + delay + 1e-6]
behind = [times for times in late if busy_at(run, times.arrival + delay)]
print(f"{len(late)} of {len(run.times)} requests wait longer than 2 ms,", end=" ")
print(f"the longest {1000 * worst_wait(run):.1f} ms")
print(f"in {len(behind)} of these {len(late)} cases a batch was running when the timer fired")

# %%
lab.reveal("03.p1", 100 * len(late) / len(run.times), unit="%")

# %% tags=["nbval-ignore-output"]
plots_batching.waits(run, delay)

# %% [markdown]
# **The promise, stated precisely.** A request waits longer than the delay *only if a batch is running at the moment its timer
# fires*, at arrival + delay. So:
#
# > The delay bounds queueing **while the engine is idle when the timer fires**, and says nothing otherwise.
#
# Behind a running batch you wait for its end, whatever the timer says. Behind more than `max_batch` others you wait several
# batches. The sentence "queueing never exceeds 2 ms" is true of an idle server and wrong of every busy one, and servers
# that batch are busy: that is why they batch.
#
# The people who built such schedulers say it correctly. TensorFlow's `BasicBatchScheduler` documents the longest time in
# the queue as *the greater of* the timeout and the time to process the batches before it.
#
# How bad can it get? Two requests, with answers of 25 tokens, on the chat prices of notebook 02:

# %% tags=["nbval-check-output"]
print(f"the second comes 1 ms after the first: longest wait {1000 * longest_wait([0.0, 0.001]):6.1f} ms")
print(f"the second comes 3 ms after the first: longest wait {1000 * longest_wait([0.0, 0.003]):6.1f} ms")

# %% [markdown]
# Two milliseconds too late to be in the batch, and the wait is as long as a whole answer.
# A timer of milliseconds belongs to models whose batches take milliseconds.

# %% [markdown]
# ## 3. Live, with text
#
# Press **Start**: the same chat requests under three start rules, in batches of up to 8.
# Look at the grey lines (waiting) at the beginning, and later, when batches run.

# %% tags=["nbval-ignore-output"]
work = lab.chat_workload(requests=quick(12, 6), rate=2.0, seed=0, max_tokens=quick(32, 8))
runs = {
    "static": dict(batching=lab.Static(8)),
    "dynamic, 2 ms": dict(batching=lab.Dynamic(8, 0.002)),
    "dynamic, 1 s": dict(batching=lab.Dynamic(8, 1.0)),
}
session = lab.live.Session(work, model, runs, name="03")
session.dashboard()

# %% [markdown]
# Things to look for:
#
# - Static: nothing at all until the eighth request is there.
# - 2 ms: the first request starts at once, *alone*. Everybody else waits for it to end.
# - 1 s: the first batch is larger. Who gains by that, who loses?
#
# If an error ended the run, the next cell raises it; otherwise it just stops the engine.

# %% tags=["nbval-ignore-output"]
session.stop()

# %% [markdown]
# ## 4. Measured

# %%
lab.predict(
    "03.p2",
    "Same requests, real model, delay 2 ms: how long does the unluckiest request wait for its batch?",
    unit="s",
)

# %% tags=["nbval-ignore-output"]
measured = lab.compare(work, model, runs)
print(measured.summary())

# %% tags=["nbval-ignore-output"]
two = measured["dynamic, 2 ms"]
lab.reveal("03.p2", worst_wait(two), unit="s")

# %% tags=["nbval-ignore-output"]
for name, report in measured.reports.items():
    waits = [times.admitted - times.arrival for times in report.times.values()]
    sizes = ", ".join(str(batch.size) for batch in batches(report.trace))
    print(f"{name:13}: {sum(wait > 0.01 for wait in waits):2d} of {len(waits)} wait over 10 ms, half of all over", end=" ")
    print(f"{report.queueing_s.p50:.2f} s, one {max(waits):.2f} s; batches of {sizes}")

# %% tags=["nbval-ignore-output"]
plots.timelines(measured)

# %% [markdown]
# ### What this shows, and what it does not
#
# - The timer does what it was made for: it ends the waiting for company. Compare the first request of each run.
# - It does not bound the waiting. Nearly everybody waits for the batch before, by far longer than the delay.
# - It does not show that 2 ms is better than 1 s, or worse: a short run with one seed is no experiment.
#   The next sections are one.

# %% [markdown]
# ## 5. What happens with no timer at all?
#
# Set the delay to 0: an engine that is free takes all that wait, at once. Call it **greedy**.
# Does it not make tiny batches? Only while it is idle. The busier it is, the more requests arrive during a batch,
# and the larger the next one.
#
# For Poisson arrivals at rate λ, and a batch of *b* requests that takes α·*b* + τ₀ seconds, Inoue (2021) has a closed form:
# mean latency is at most min(φ₀, φ₁), where ρ = λα is the load,
#
# $$\varphi_0 = \frac{\alpha+\tau_0}{2(1-\rho)}\left(1 + 2\lambda\tau_0 + \frac{1-\lambda\tau_0}{1+\rho}\right), \qquad
# \varphi_1 = \frac{3}{2}\,\frac{\tau_0}{1-\rho} + \frac{\alpha}{2}\,\frac{\rho+2}{1-\rho^2}$$
#
# Our prices are of that form: τ₀ = 20 ms, α = 10 · 0.2 ms = 2 ms. Formula and engine, side by side:

# %%
lab.predict("03.p3", "Greedy, no limit on the batch, load ρ = 0.9: how large is the mean batch?", unit="requests")

# %% tags=["nbval-check-output"]
points = []
for load in (0.1, 0.3, 0.5, 0.7, 0.9):
    rate = load / 0.002
    report = serve(calm(rate, requests=4000 if load < 0.8 else 20_000), prices, "greedy", most=10**6)
    size = mean(batch.size for batch in batches(report.trace))
    bound = greedy_latency(rate, per_request=0.002, per_batch=0.020)
    points.append({"load": load, "latency": report.e2e_s.mean, "bound": bound, "batch": size})
    print(f"ρ = {load}: {rate:3.0f} requests/s, mean batch {size:5.1f},", end=" ")
    print(f"mean latency {1000 * report.e2e_s.mean:5.1f} ms, bound {1000 * bound:5.1f} ms")

# %%
lab.reveal("03.p3", points[-1]["batch"], unit="requests")

# %% tags=["nbval-ignore-output"]
plots_batching.theory(points)

# %% [markdown]
# **Greedy adapts.** Nobody tells it the load, and its batches grow with it. That undercuts the usual argument for a timer,
# that without one batches would be too small when it matters.
#
# (It is an upper bound, so the engine stays a little below it. A queue at high load needs long to settle, hence more requests
# there. The lab's test suite lets 300,000 through, and finds the formula within 2 % at the loads it tests.)

# %% [markdown]
# ## 6. A fixed delay on calm traffic

# %%
lab.predict(
    "03.p4",
    "Poisson arrivals, 40 per second. With which delay is the mean latency shortest?",
    options=["0", "2 ms", "5 ms", "10 ms", "20 ms"],
)

# %% tags=["nbval-check-output"]
rates, latency, busy = (5, 20, 40, 100, 200), {}, {}
for delay_ms in (0, 2, 5, 10, 20):
    name, control = (f"{delay_ms} ms", f"fixed:{delay_ms}ms") if delay_ms else ("0", "greedy")
    reports = {rate: serve(calm(rate, requests=800), prices, control) for rate in rates}
    latency[name] = {rate: report.e2e_s.mean for rate, report in reports.items()}
    busy[name] = {rate: report.utilisation for rate, report in reports.items()}
print("mean latency (engine busy)")
print("delay    " + "".join(f"{rate:>14}/s" for rate in rates))
for name in latency:
    print(f"{name:>6}   " + "".join(f"{1000 * latency[name][r]:7.1f} ms ({busy[name][r]:3.0%})" for r in rates))

# %%
lab.reveal("03.p4", min(latency, key=lambda name: latency[name][40]))

# %% tags=["nbval-ignore-output"]
plots_batching.delay_curves({name: latency[name] for name in ("0", "2 ms", "10 ms", "20 ms")}, busy)

# %% [markdown]
# - **Low load.** A delay is simply added. There is nobody to wait for.
# - **High load.** The timer has fired long before the engine is free, so it hardly matters.
# - In between it costs latency and buys **machine time**: fewer, larger batches for the same requests. If the machine is
#   rented by the second, or other models want it too, that may be worth the milliseconds. It is a reason, and a different
#   one.

# %% [markdown]
# ## 7. The experiment
#
# **Open question: how should the delay be controlled?** One often reads: near 0 ms at low load, 5 to 10 ms at the peak.
# One also reads that vLLM does so. What the systems really do:
#
# | system | rule | is there a timer in milliseconds? |
# |---|---|---|
# | vLLM V1 | fills a budget of tokens, every step anew | **no**. It has no batching timer at all |
# | vLLM V0 | `--scheduler-delay-factor`: a prompt waits in proportion to how long the last prompts took; default 0, gone in V1 | no, a factor; never while the engine is idle |
# | SGLang | `PrefillDelayer`, with data-parallel attention only | no, counted in passes |
# | Triton | fixed `max_queue_delay_microseconds` | yes, **default 0** |
# | TensorFlow Serving | fixed `batch_timeout_micros`; another scheduler climbs a hill on the number of batches in flight | yes / no |
# | BentoML | waits another tick while that costs less than a larger batch saves; fitted online | yes, truly adaptive |
# | Clipper (paper) | additive increase, multiplicative decrease of the batch *size* | no |
# | Pang et al. | binary search for the size that meets a latency objective | no |
#
# So adaptive delay exists. But we found no source that gives the popular threshold rule itself, and no published engine
# that uses a PID controller for it. The lab has all of these as controllers. Eight of them steer a dynamic batch; the ninth
# refuses, and says why:

# %% tags=["nbval-check-output"]
try:
    lab.Dynamic(64, "delay-factor")
except BadPolicy as error:
    print(error)

# %% [markdown]
# Three kinds of traffic, each with 40 requests per second on average and the same requests. Only *when* they come differs:
#
# - **calm**: Poisson arrivals.
# - **bursty**: arrivals like those of a code assistant (a synthetic trace after Azure's published statistics): bursts and
#   long silences.
# - **clumped**: eight requests within 4 ms, as from one page view that asks for eight things; the clumps themselves are
#   Poisson.

# %%
lab.predict(
    "03.p5",
    "On which traffic does some controller beat 'no timer' by more than 5 % in mean latency?",
    options=["none", "calm", "bursty", "clumped", "all three"],
)

# %% tags=["nbval-check-output"]
controls = {
    "greedy": "greedy", "fixed 2 ms": "fixed:2ms", "fixed 10 ms": "fixed:10ms", "threshold": "threshold:5ms:10ms",
    "PID": "pid:5ms", "AIMD": "aimd:50ms", "marginal cost": "marginal-cost", "hill climb": "hill-climb",
    "SLA search": "sla-search:50ms",
}
traffic = {"calm": calm(40), "bursty": bursty(40), "clumped": clumped(40)}
table = {
    name: {kind: serve(times, prices, spec) for kind, times in traffic.items()} for name, spec in controls.items()
}
print("mean latency / p95 / mean batch" + "".join(f"{kind:>24}" for kind in traffic))
for name, reports in table.items():
    cells = [(r.e2e_s.mean, r.e2e_s.p95, mean(b.size for b in batches(r.trace))) for r in reports.values()]
    print(f"{name:>29}  " + "".join(f"{1000 * m:8.1f} /{1000 * p:6.1f} /{b:5.2f}" for m, p, b in cells))

# %% tags=["nbval-ignore-output"]
means = {name: {kind: report.e2e_s.mean for kind, report in reports.items()} for name, reports in table.items()}
plots_batching.controllers(means)

# %% tags=["nbval-check-output"]
for kind in traffic:
    best = min(means, key=lambda name: means[name][kind])
    worse = ", ".join(name for name in means if means[name][kind] > 1.05 * means["greedy"][kind])
    print(f"{kind:8}: best is {best}, {1 - means[best][kind] / means['greedy'][kind]:.1%} below greedy;", end=" ")
    print(f"more than 5 % above it: {worse or 'none'}")

# %%
wins = [kind for kind in traffic if min(means[n][kind] for n in means) < 0.95 * means["greedy"][kind]]
lab.reveal("03.p5", {0: "none", 1: wins[0] if wins else "", 3: "all three"}.get(len(wins), " and ".join(wins)))

# %% [markdown]
# One run is one run. The same for timers alone, at three rates and on three samples of each traffic.
# Of three delays the best is taken *afterwards*, in the timer's favour:

# %% tags=["nbval-check-output"]
verdicts = {}
for kind, make in {"calm": calm, "bursty": bursty, "clumped": clumped}.items():
    gains = [best_timer(kind, make, rate, prices) for rate in (20, 40, 100)]
    for gain in gains:
        shares = " ".join(f"{share:+6.1%}" for share in gain.shares)
        print(f"{kind:8} {gain.rate:4g}/s: best delay {1000 * gain.delay:2.0f} ms, mean latency shorter by {shares}")
    verdicts[kind] = verdict(gains)
for kind, text in verdicts.items():
    print(f"{kind}: {text}")

# %% [markdown]
# ### Is a timer needed at all?
#
# The last three lines above are the verdict, and they were computed, not written. In words:
#
# - **When requests come one by one, no.** Greedy adapts by itself; a timer adds its delay when the engine is idle, and is not
#   asked when it is busy. Adaptive rules manage, at best, to do no harm.
# - **When requests come in clumps, yes**, and a fixed delay a little longer than the clump is enough. Greedy takes the first
#   of a clump and lets the others wait for a whole batch. Of the adaptive rules, marginal cost finds most of this gain by
#   itself. (Better still: let the client send the clump as one batch.)
# - **Size controllers** can only make batches smaller than greedy's. They are made to protect the latency of a *batch*, and
#   can pay for it with queueing when a burst comes.
#
# ### What this does not show
#
# - One engine, batches of linear cost, requests of equal size, at most 64 in a batch. Where a batch of 8 costs no more than
#   one of 1, or where a size has a special kernel, the balance shifts.
# - Several engines behind one queue: then an idle engine is no sign of low load, and a timer can keep work together.
# - **Machine time and money.** We judged by latency. Section 6 shows what a delay saves there.
# - Controllers with our settings, not tuned. Whoever tunes one for a traffic should test it on another.

# %% [markdown]
# ## 8. The ninth: a delay for prompts
#
# vLLM's delay factor belongs to continuous batching, where a prompt that joins makes everybody's step long (notebook
# [04](04_continuous_batching.ipynb), and 07). Letting prompts wait makes fewer such steps:

# %% tags=["nbval-check-output"]
chat_prices = lab.Priced(step=0.040, token=0.002)
chat = lab.chat_workload(requests=60, rate=4.0, seed=0)
for factor in (0, 0.5, 2, 5):
    policy = lab.Continuous(16, "delay-factor", factor)
    report = lab.run(chat, chat_prices, batching=policy, chunking="whole")
    gaps = f"{1000 * report.itl_s.mean:3.0f} ms mean, {1000 * report.itl_s.p95:3.0f} ms p95"
    print(f"factor {factor:3}: gap between tokens {gaps}; first token after {report.ttft_s.p50:.2f} s;", end=" ")
    print(f"{report.output_tokens_per_s:.1f} tokens/s")

# %% [markdown]
# It trades the time to the first token for smoother text. Its pull request reported the same trade, and expected chunked
# prefill (notebook 07) to solve the problem in another way. V1 has kept only that.

# %% [markdown]
# ## Exercises
#
# ### 03.1 When does a batch start? (fill in)
# `waiting` requests wait, `running` are in the batch that runs, the oldest of those who wait has `waited` so many seconds.
# Return how many start now.

# %%
def start_now(waiting, running, waited, max_batch, delay):
    """How many of the waiting requests start a batch now; 0 to wait on."""
    ### BEGIN SOLUTION
    if running:
        return 0
    if waiting >= max_batch or waited >= delay:
        return min(waiting, max_batch)
    return 0
    ### END SOLUTION

lab.check("03.1", start_now)

# %% tags=["nbval-check-output"]
with lab.course.when_done("03.1"):
    mine = lab.run(one_pass(calm(40, requests=200)), prices, batching=StartRule(start_now, 8, 0.002))
    print(f"your rule:   {mine.steps} batches, mean latency {1000 * mine.e2e_s.mean:.2f} ms")
    print(f"lab.Dynamic: {run.steps} batches, mean latency {1000 * run.e2e_s.mean:.2f} ms")

# %% [markdown]
# ### 03.2 A second behind two milliseconds (explore)
# `longest_wait(arrivals)` runs answers of 25 tokens through dynamic batches of 8 with a delay of 2 ms.
# **Find two or three arrival times (within 10 seconds) with which one request waits more than 1 s.** No batch is ever full.

# %% tags=["nbval-check-output"]
for arrivals in ([0.0, 0.0, 0.0], [0.0, 5.0, 9.0]):
    print(arrivals, f"longest wait {1000 * longest_wait(arrivals):.1f} ms")

# %%
### BEGIN SOLUTION
### STUB: unlucky = ...  # your answer: a list of arrival times
unlucky = [0.0, 0.003]
### END SOLUTION
lab.check("03.2", unlucky)

# %% [markdown]
# ### 03.3 Traffic for which a timer pays (explore)
# `with_and_without(arrivals, delay)` gives the mean latency with a timer and without, for one-pass requests in batches of
# up to 8. **Find 24 or more arrival times (within 10 seconds) and a delay (up to 50 ms) with which the timer makes the mean
# at least 10 % shorter.**

# %% tags=["nbval-check-output"]
for wait in (0.002, 0.010):
    timer, none = with_and_without([0.3 * i for i in range(32)], wait)
    print(f"evenly spaced, delay {1000 * wait:2.0f} ms: {1000 * timer:.1f} ms with the timer, {1000 * none:.1f} ms without")

# %%
### BEGIN SOLUTION
### STUB: good_for_a_timer = ...  # your answer: (arrivals, delay)
good_for_a_timer = ([0.5 * k + 0.001 * i for k in range(8) for i in range(4)], 0.005)
### END SOLUTION
lab.check("03.3", good_for_a_timer)

# %% [markdown]
# ### 03.4 A promise that is not kept (break it)
# Two engines with the same setting: batches of up to 16, a delay of 20 ms. One request comes every 15 ms.
# The suspect makes large batches and is much less busy; somebody calls that an improvement. Its waits are far longer than
# the delay, but that alone convicts nobody: behind a running batch any wait is possible.

# %% tags=["nbval-check-output"]
stream = one_pass([0.015 * i for i in range(96)])
healthy = lab.run(stream, prices, batching=lab.Dynamic(16, 0.020))
suspect = broken_batching.run(stream, prices, "03.4", batching=lab.Dynamic(16, 0.020))
for name, report in {"healthy": healthy, "suspect": suspect}.items():
    print(f"{name}: mean batch {report.mean_batch:.1f}, busy {report.utilisation:.0%}, queueing", end=" ")
    print(f"{1000 * report.queueing_s.p50:.1f} ms median, {1000 * worst_wait(report):.1f} ms at most")

# %% tags=["nbval-ignore-output"]
plots.batch_sizes({"healthy": healthy, "suspect": suspect})

# %% [markdown]
# Look at the gaps: a request comes every 15 ms, so in each gap somebody waits and nobody runs. How long may that last?
#
# Use the promise of section 2, word by word. `report.times` has for each request `arrival` and `admitted` (seconds), and
# `id`; a step of `report.trace` runs from `start` to `end`, both included. Allow `1e-6` seconds for rounding.

# %%
def broken_promises(report, delay):
    """Ids of requests that waited longer than `delay` although no step was running when their timer fired."""
    ### BEGIN SOLUTION
    found = []
    for times in report.times.values():
        fires = times.arrival + delay
        busy = any(step.start <= fires <= step.end for step in report.trace)
        if times.admitted > fires + 1e-6 and not busy:
            found.append(times.id)
    return found
    ### END SOLUTION

lab.check("03.4", broken_promises)

# %% tags=["nbval-check-output"]
with lab.course.when_done("03.4"):
    print("healthy:", len(broken_promises(healthy, 0.020)), "broken promises of", len(healthy.times))
    print("suspect:", len(broken_promises(suspect, 0.020)), "broken promises of", len(suspect.times))

# %% [markdown]
# <details><summary>The bug, when you have found the requests</summary>
#
# Each arrival starts the timer again. It measures the gap between two arrivals and not how long the oldest has waited, so a
# steady stream holds a batch back until it is full. In the public thread in the sources, batches of 32 and a timer of 20 ms
# came to waits of up to 600 ms.
# </details>

# %% [markdown]
# ## In real engines
#
# | server | size | delay |
# |---|---|---|
# | Triton | `max_batch_size`, `preferred_batch_size` | `max_queue_delay_microseconds`, default 0: "will not delay" |
# | TensorFlow Serving | `max_batch_size` | `batch_timeout_micros`, 0 in the C++ options; its guide: try 1 to 10 ms on CPUs, and 0 may be best |
# | Ray Serve | `@serve.batch(max_batch_size=10)` | `batch_wait_timeout_s`, default 0.01 (0 in older versions) |
# | BentoML | `max_batch_size` | `max_latency_ms` is the *objective*; how long it waits is fitted online |
# | TorchServe (no longer maintained) | `batchSize` | `maxBatchDelay`, in ms |
# | KServe's batcher | `maxBatchSize` | `maxLatency`, in ms |
# | vLLM, SGLang, TensorRT-LLM | `--max-num-seqs`, `--max-running-requests`, `max_batch_size` | none: continuous batching decides at every step |
#
# Before you set one of the delays, ask how your requests arrive, and what else wants the machine.

# %% [markdown]
# ## Summary
#
# - Dynamic batching starts at a size or after a time, whichever comes first, and never while a batch runs.
# - The time bounds queueing only while the engine is idle when the timer fires. "Never above 2 ms" is wrong on a busy server.
# - With no timer at all, batches grow with the load by themselves; theory and engine agree.
# - A timer pays in latency when requests come in clumps shorter than the delay, and in machine time at medium load. For
#   calm traffic it does not shorten latency, however cleverly it is controlled.
# - For generated text a batch takes seconds. There the answer is not a better timer but joining at every step:
#   [04 Continuous batching](04_continuous_batching.ipynb).
#
# ## Sources
#
# - Inoue, *Queueing analysis of GPU-based inference servers with dynamic batching*, Performance Evaluation 2021,
#   [arXiv 1912.06322](https://arxiv.org/abs/1912.06322).
# - The contract quoted in section 2:
#   [basic_batch_scheduler.h](https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/kernels/batching_util/basic_batch_scheduler.h).
# - Exercise 03.4: [rudder-server issue 78](https://github.com/rudderlabs/rudder-server/issues/78), a batching web gateway.
#   Ray Serve's timer once began at the wrong moment too, at the end of the batch before: [pull request
#   36510](https://github.com/ray-project/ray/pull/36510).
# - Delay factor: vLLM [pull request 3279](https://github.com/vllm-project/vllm/pull/3279). Marginal cost: BentoML's
#   [adaptive batching](https://docs.bentoml.com/en/latest/guides/adaptive-batching.html) and its dispatcher. AIMD:
#   Crankshaw et al., *Clipper*, NSDI 2017. Hill climb: TensorFlow's `adaptive_shared_batch_scheduler.h`. SLA search: Pang
#   et al., [arXiv 2503.05248](https://arxiv.org/abs/2503.05248).
# - The threshold advice and its attribution to vLLM: Fregly, *AI Systems Performance Engineering*, chapter 16.
# - Settings: [Triton](https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/batcher.html),
#   [TensorFlow Serving](https://github.com/tensorflow/serving/blob/master/tensorflow_serving/batching/README.md), [Ray
#   Serve](https://docs.ray.io/en/latest/serve/api/doc/ray.serve.batch.html),
#   [TorchServe](https://docs.pytorch.org/serve/batch_inference_with_ts.html),
#   [KServe](https://kserve.github.io/website/docs/model-serving/predictive-inference/batcher).
