"""OpenVINO GenAI's continuous batching, float32 weights, arithmetic, keys and values."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import openvino
from exchange import answer
from openvino_genai import ContinuousBatchingPipeline, GenerationConfig, SchedulerConfig


@lru_cache(maxsize=1)
def pipeline(folder: str, running: int, budget: int):
    settings = SchedulerConfig()
    settings.cache_size = 2  # GB
    settings.max_num_batched_tokens = budget
    settings.max_num_seqs = running
    settings.dynamic_split_fuse = True
    settings.enable_prefix_caching = False
    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    return ContinuousBatchingPipeline(folder, settings, "CPU", exact)


def run(task, requests):
    settings = []
    for _, count in requests:
        config = GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = count, True, False
        settings.append(config)
    prompts = [openvino.Tensor(np.array([prompt], np.int64)) for prompt, _ in requests]
    found = pipeline(task["openvino_model"], task["running"], task["budget"]).generate(prompts, settings)
    return [result.m_generation_ids[0] for result in found]


if __name__ == "__main__":
    answer(run)
