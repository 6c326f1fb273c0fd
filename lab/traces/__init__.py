"""Arrival traces and length files of real services, and small synthetic ones, as workloads.

    azure(path)       CSV of the Azure LLM inference traces: when, how long the prompt, how long the answer
    mooncake(path)    JSONL of the Mooncake traces: also which 512-token blocks a prompt shares with others
    lengths(path)     CSV of prompt and answer lengths without times; arrivals are then Poisson
    load(path)        whichever of the three the file is

The originals come with `python3 -m lab fetch-data`, the synthetic ones lie in `data/synthetic`.
"""

from __future__ import annotations

from lab.traces.formats import azure, lengths, load, mooncake
from lab.traces.statistics import TraceStatistics

__all__ = ["TraceStatistics", "azure", "lengths", "load", "mooncake"]
