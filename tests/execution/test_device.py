"""Choosing where and in which numbers to compute, and saying so where that cannot be."""

from __future__ import annotations

import pytest
import torch

from lab.errors import ModelError
from lab.execution.device import check_room, choose_device, choose_dtype, seen_by_torch, send
from lab.execution.model import load_model

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def t4(monkeypatch):
    """What torch says on a Colab T4."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=0: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=0: (7, 5))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=0: (2**33, 2**34))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device=0: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device=0: 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_that_is_not_here_is_refused_with_what_torch_sees():
    with pytest.raises(ModelError, match=r"device 'cuda' is not here: torch .*\. Use device='cpu'") as caught:
        load_model("tiny", device="cuda")
    assert torch.__version__ in str(caught.value)
    assert choose_device("auto") == CPU


def test_a_gpu_that_does_not_exist_is_refused_with_those_that_do(t4):
    assert choose_device("cuda") == choose_device("auto") == choose_device("cuda:0") == GPU
    with pytest.raises(ModelError, match=r"'cuda:1' is not here: .*sees 1 CUDA devices: Tesla T4"):
        choose_device("cuda:1")
    assert seen_by_torch().endswith("(CUDA 13.0) sees 1 CUDA devices: Tesla T4")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "mps", "meta"])
def test_other_devices_are_refused(name):
    with pytest.raises(ModelError, match="there are cpu, cuda, cuda:N and auto"):
        choose_device(name)


def test_the_default_dtype_is_the_shortest_the_device_is_good_at(t4, monkeypatch):
    assert choose_dtype(None, CPU) == torch.float32
    assert choose_dtype(None, GPU) == torch.float16
    with pytest.raises(ModelError, match="Tesla T4 has no bfloat16 .* use dtype='float16'"):
        choose_dtype("bfloat16", GPU)
    assert choose_dtype("float32", GPU) == torch.float32
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=0: (8, 0))
    assert choose_dtype(None, GPU) == torch.bfloat16
    with pytest.raises(ModelError, match="no dtype 'int4'; there are float32, bfloat16, float16"):
        choose_dtype("int4", CPU)


def test_too_much_for_a_gpu_is_refused_with_both_sizes(t4):
    check_room(2**33, "a pool", "take fewer blocks", GPU)
    with pytest.raises(ModelError, match=r"no memory for a pool: 8.50 GiB are needed \(free on cuda:0: 8.00 GiB\);"):
        check_room(17 * 2**29, "a pool", "take fewer blocks", GPU)


def test_storage_is_for_the_cpu_in_float32():
    with pytest.raises(ModelError, match="storage 'fp16' is for float32 on the CPU; on cpu choose a dtype"):
        load_model("tiny", dtype="bfloat16", storage="fp16")
    assert load_model("tiny", storage="fp16").step_bytes(1, 0) < load_model("tiny").step_bytes(1, 0)


def test_nothing_is_copied_to_where_it_is():
    tensor = torch.arange(3)
    assert send(tensor, CPU) is tensor
