"""Convert the downloaded GGUF once into float32 safetensors plus tokenizer files.

Run inside the environment as ``python -m lab.setup.convert GGUF FOLDER``: afterwards loading the model
takes about a second and needs no GGUF reader.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write config.json, model.safetensors (float32), tokenizer files and the chat template into folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    print("reading the tokenizer", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    print("reading the weights", flush=True)
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    print("writing float32 weights", flush=True)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder, max_shard_size="10GB")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
