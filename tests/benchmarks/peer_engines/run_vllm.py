"""vLLM on the CPU, float32, eager, its own token budget (a smaller one made it slower)."""

from __future__ import annotations

import os
from functools import lru_cache

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

from exchange import answer  # noqa: E402
from vllm import LLM, SamplingParams  # noqa: E402


@lru_cache(maxsize=1)
def engine(folder: str, running: int):
    return LLM(
        folder,
        dtype="float32",
        enforce_eager=True,
        max_num_seqs=running,
        max_num_batched_tokens=2048,
        max_model_len=1024,
        enable_prefix_caching=False,
        skip_tokenizer_init=True,
    )


def run(task, requests):
    prompts = [{"prompt_token_ids": prompt} for prompt, _ in requests]
    settings = [
        SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False) for _, count in requests
    ]
    found = engine(task["model"], task["running"]).generate(prompts, settings, use_tqdm=False)
    return [result.outputs[0].token_ids for result in found]


if __name__ == "__main__":
    answer(run)
