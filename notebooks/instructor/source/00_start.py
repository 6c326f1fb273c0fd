# %% [markdown]
# # Start here
#
# Eight people ask a language model something at the same moment.
# One computer has to answer all of them.
# It can serve one after the other, or all at once, and *how* it groups them decides how long each person waits.
# This grouping is called **batching**, and it is what this course is about.
#
# You will change the grouping, and nothing else, and watch what happens: with a real language model, on this computer.
# The same questions get the same answers under every kind of batching.
# Only waiting time, speed, memory and wasted work change, so every comparison is a fair one.
#
# The course is for engineers and students who can read Python.
# No knowledge of machine learning is needed: the few words you need are explained where they first appear.

# %% [markdown]
# ## Is this computer ready?
# Click the next cell and press Shift+Enter.
# Every notebook is read like this, from top to bottom.

# %% tags=["nbval-ignore-output"]
import lab
from lab.course import broken, plots, quick

lab.course.seat_check()

# %% [markdown]
# ## The notebooks
# Read 00, 01 and 04 first if you have an hour: they are the backbone, and every other notebook adds one idea to them.

# %% tags=["nbval-ignore-output"]
lab.course.contents()

# %% [markdown]
# ## How a notebook works
#
# 1. **Question.** Something you would want to know if you ran such a server.
# 2. **Predict.** You commit to a guess before you see the result. A wrong guess is the useful kind.
# 3. **Run.** Real model, real tokens; or a *virtual clock*, where steps have a fixed price and every computer gets the
#    same numbers. Each picture says which: *measured* or *simulated*.
# 4. **What the numbers show, and what they do not.**
# 5. **Exercises.** `lab.check` says whether your code behaves as it should, and gives a bigger hint at each try.
#    One exercise per notebook is *break-it*: an engine with a bug that a real project once had, and you find it.
#
# Skipping is fine: all cells run without your answers.

# %% [markdown]
# ## A taste: eight questions at once
#
# **Question.** Eight people ask at the same moment.
# Is it quicker to answer them one after the other, or together? And does anybody lose?
#
# Four words for it:
#
# - A **token** is a piece of text, often a word or half of one. The model reads and writes tokens.
# - A **request** is one question and the answer made for it.
# - A **step** is one pass through the model. It adds at most one token to each answer it works on.
# - A **batch** is the set of requests that share a step.

# %%
lab.predict(
    "00.p1",
    "All eight answers are made together instead of one after the other. "
    "How many times sooner is the last of them finished? (1 = no difference, 8 = eight times sooner)",
    unit="×",
)

# %% [markdown]
# Now both, for real.
# `Continuous(1)` gives the engine room for one request at a time, `Continuous(8)` for eight.
# This takes about half a minute.

# %% tags=["nbval-ignore-output"]
model = lab.load_model()
work = lab.chat_workload(quick(8, 4), rate=1e6, seed=3, max_tokens=32)  # a million per second: all at once
taste = lab.compare(
    work,
    model,
    {
        "one at a time": dict(batching=lab.Continuous(max_running=1)),
        "together": dict(batching=lab.Continuous(max_running=8)),
    },
)
for name, report in taste.reports.items():
    print(f"{name:14} {report.duration_s:5.1f} s for all, {report.output_tokens_per_s:6.1f} tokens/s, ", end="")
    print(f"first token after {report.ttft_s.p50:5.2f} s (median), same tokens: {taste.same[name]}")

# %% [markdown]
# These are the answers.
# Each stops after 32 tokens, because its request allows no more.
# The model is tiny (135 million parameters; GPT-3 had 175 billion), so what it says is fluent and not always true.
# That does not matter here: we look at *when* tokens come.

# %% tags=["nbval-ignore-output"]
import textwrap

for request, spec in enumerate(work.specs):
    answer = model.decode(taste["together"].outputs[request])
    print(textwrap.fill(f"{request}  {spec.prompt}", 110, subsequent_indent="   "))
    print(textwrap.fill(answer, 110, initial_indent="   → ", subsequent_indent="     "))

# %% tags=["nbval-ignore-output"]
plots.finish_times(taste)

# %%
alone, together = taste["one at a time"], taste["together"]
lab.reveal("00.p1", alone.duration_s / together.duration_s, unit="×")

# %% [markdown]
# ### What this shows

# %% tags=["nbval-ignore-output"]
speedup = alone.duration_s / together.duration_s
first, shared = alone.times[0].e2e, together.times[0].e2e
print(f"Together, the last answer is there {speedup:.1f}× sooner.")
longer = (together.duration_s / together.steps) / (alone.duration_s / alone.steps)
print(f"A step then works for {together.mean_batch:.1f} requests on average, and takes {longer:.1f}× as long.")
print(f"Request 0 was first in line. Alone it is done after {first:.2f} s, together after {shared:.2f} s:")
print("it loses." if shared > first else "it does not lose either, on this computer, this time.")

# %% [markdown]
# A step for eight costs little more than a step for one: notebook 01 measures that and says why.
# It is the reason why batching exists.
#
# ### What it does not show
#
# - Everybody asked at the same moment. Real people come one by one, and then somebody has to decide whether to wait for
#   company. That is what notebooks 02 to 04 are about.
# - All answers had the same length, so all seats stayed taken until the end. Real answers are uneven.
# - The prompts were short, and there was memory for all.
# - The factor belongs to this model on this computer. On a GPU it is another one; the shape of the story is the same.

# %% [markdown]
# ## Exercises
# These three show how exercises work. They are small.
#
# ### 00.1 Who waits longer? (fill in)
# You get two dictionaries: request → seconds until its last token, alone and together.
# Return the requests that are finished *later* when all are answered together.

# %%
def waits_longer(alone, together):
    """Requests for which `together` takes longer than `alone`."""
    ### BEGIN SOLUTION
    return [request for request in alone if together[request] > alone[request]]
    ### END SOLUTION

lab.check("00.1", waits_longer)

# %% tags=["nbval-ignore-output"]
with lab.course.when_done("00.1"):
    seconds = [{i: times.e2e for i, times in report.times.items()} for report in (alone, together)]
    print("finished later when answered together:", waits_longer(*seconds))

# %% [markdown]
# ### 00.2 How large may the batch be? (explore)
# A larger batch serves more people, and makes each of them read a little more slowly.
#
# Here nothing is computed: a step costs 40 ms plus 2 ms for each token in it, about what the reference machine of this
# course needs. So runs take no time, and you and your neighbour get the same numbers.
# Eight requests arrive together. TPOT is the *time per output token*: how long a reader waits for the next one.
#
# Try all values of `max_running` from 1 to 8.
# **What is the largest one with which the slowest request has a TPOT of at most 55 ms?**

# %% tags=["nbval-check-output"]
from lab.course.exercises.nb00 import EIGHT

prices = lab.Priced(step=0.040, token=0.002)
for max_running in (1, 8):
    report = lab.run(EIGHT, prices, batching=lab.Continuous(max_running))
    slowest = max(times.tpot for times in report.times.values())
    print(f"max_running {max_running}: slowest TPOT {1000 * slowest:.1f} ms, all done after {report.duration_s:.2f} s")

# %%
### BEGIN SOLUTION
### STUB: largest = ...  # your answer: a number from 1 to 8
largest = 4
### END SOLUTION
lab.check("00.2", largest)

# %% [markdown]
# <details><summary>When you have found it</summary>
#
# Did you notice that 7 is slower than 8?
# With seven seats the eighth person joins later, and the step that reads their prompt is a long one for everybody who
# is reading along. Notebook 07 is about that.
# </details>

# %% [markdown]
# ### 00.3 A promise not kept (break it)
# Every request says how many tokens it wants at most: `max_tokens`. People pay per token, so this has to be exact.
# The engine below breaks the promise. It is a bug a real engine had: see the sources at the end, *afterwards*.
#
# Find the requests that got too many tokens.
# `report.times[i].tokens` lists when each token of request `i` was made, and
# `report.trace.requests[i].max_tokens` is what was asked for.

# %%
def over_limit(report):
    """Ids of the requests that got more tokens than they asked for."""
    ### BEGIN SOLUTION
    asked = report.trace.requests
    return [i for i, times in report.times.items() if len(times.tokens) > asked[i].max_tokens]
    ### END SOLUTION

lab.check("00.3", over_limit)

# %% tags=["nbval-check-output"]
suspect = broken.run(lab.chat_workload(8, seed=3), lab.Priced(), "00.3", batching="continuous:4", blocks=200)
with lab.course.when_done("00.3"):
    print("over their limit:", over_limit(suspect))
    print("tokens too many:", [len(t.tokens) - suspect.trace.requests[i].max_tokens for i, t in suspect.times.items()])

# %% [markdown]
# An average would not have shown this. A check of the contract, request by request, does.
# That is why the lab's own tests compare every token of every request, and count every block of memory after each step.

# %% [markdown]
# ## In real engines
#
# | engine | how you meet what you just did |
# |---|---|
# | vLLM | `vllm serve MODEL`; requests are batched together without any switch; `--max-num-seqs` is our `max_running` |
# | SGLang | `python -m sglang.launch_server --model-path MODEL`; `--max-running-requests` is our `max_running` |
# | TensorRT-LLM | says *in-flight batching*; `max_batch_size` is our `max_running` |
# | Text Generation Inference | `text-generation-launcher --model-id MODEL`; `--max-batch-total-tokens` bounds the batch by memory |
# | any of them, over HTTP | `max_tokens` in the request is the promise of exercise 00.3; `"stream": true` shows tokens as they come |

# %% [markdown]
# ## Summary
#
# - A server that computes several answers in the same step is much faster in total, because a step for many costs
#   little more than a step for one.
# - The first in line may lose a little. Batching trades one person's speed for everybody's.
# - The tokens do not change. If they do, something is broken.
#
# Next: [01 One request](01_one_request.ipynb) opens the box: what a step is, and why a step for eight is nearly free.
#
# ## Sources
#
# - Model: SmolLM2-135M-Instruct, Hugging Face, Apache-2.0; [model card](https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct).
# - Exercise 00.3: [mistral.rs issue 1539](https://github.com/EricLBuehler/mistral.rs/issues/1539), `max_tokens` + 1 tokens
#   come out.
# - Flags: the engines' own documentation:
#   [vLLM](https://docs.vllm.ai/), [SGLang](https://docs.sglang.io/),
#   [TensorRT-LLM](https://nvidia.github.io/TensorRT-LLM/), [TGI](https://huggingface.co/docs/text-generation-inference/).
