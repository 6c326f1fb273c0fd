"""transformers' continuous batching over paged attention in torch."""

from __future__ import annotations

from functools import lru_cache

import torch
from exchange import answer
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig


@lru_cache(maxsize=1)
def model(folder: str):
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return loaded.eval()


def run(task, requests):
    settings = ContinuousBatchingConfig(
        max_batch_tokens=task["budget"],
        max_requests_per_batch=task["running"],
        page_size=16,
        num_blocks=1024,
        allow_block_sharing=False,
    )
    greedy = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    manager = model(task["model"]).init_continuous_batching(greedy, settings)
    manager.start()
    for index, (prompt, count) in enumerate(requests):
        manager.add_request(prompt, str(index), max_new_tokens=count, eos_token_id=-1)
    outputs = {}
    while len(outputs) < len(requests):
        result = manager.get_result(timeout=600)
        if result is None:
            raise SystemExit("transformers' continuous batching stopped before all requests were done")
        if result.is_finished():
            outputs[int(result.request_id)] = result.generated_tokens
    manager.stop(block=True)
    return [outputs[index] for index in range(len(requests))]


if __name__ == "__main__":
    answer(run)
