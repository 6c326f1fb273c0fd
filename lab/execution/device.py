"""Where a model computes and in which numbers: choosing, refusing in a sentence, and running out of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from lab.errors import ModelError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """cpu, cuda, cuda:N, or auto: a CUDA device where torch sees one. Raises ModelError where it is absent."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ModelError(f"there is no device {name!r}; there are cpu, cuda, cuda:N and auto") from error
    if device.type not in ("cpu", "cuda"):
        raise ModelError(f"this engine has no kernels for {name!r}; there are cpu, cuda, cuda:N and auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(f"device {name!r} is not here: {seen_by_torch()}. Use device='cpu'")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def seen_by_torch() -> str:
    """What torch says about CUDA on this computer."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    count = torch.cuda.device_count()
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    return f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees {count} CUDA devices{names and ': ' + names}"


def choose_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """The named type, else float32 on the CPU and on a GPU bfloat16, or float16 where that is older than Ampere."""
    ampere = device.type == "cpu" or torch.cuda.get_device_capability(device) >= (8, 0)
    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16 if ampere else torch.float16
    if name not in DTYPES:
        raise ModelError(f"there is no dtype {name!r}; there are {', '.join(DTYPES)}")
    if name == "bfloat16" and not ampere:
        gpu = torch.cuda.get_device_name(device)
        raise ModelError(f"{gpu} has no bfloat16 (that began with compute capability 8.0): use dtype='float16'")
    return DTYPES[name]


def room(device: torch.device) -> int | None:
    """Bytes that could be taken now: a GPU's free memory, or all of this machine's; None where it is unknown."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def check_room(needed: int, what: str, advice: str, device: torch.device) -> None:
    """Refuse what cannot fit. Linux would grant such memory and kill the process when it is filled."""
    has = room(device)
    if has is not None and needed > has:
        place = "this machine has" if device.type == "cpu" else f"free on {device}:"
        raise ModelError(f"no memory for {what}: {_gib(needed)} are needed ({place} {_gib(has)}); {advice}")


@contextmanager
def explain_memory(what: str, advice: str, device: torch.device) -> Iterator[None]:
    """Turn torch's out-of-memory errors into a ModelError that says what was wanted and what to reduce."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ModelError(f"no memory for {what} on {device}{_left(device)}; {advice}") from error
    except RuntimeError as error:  # the allocators of plain and of pinned host memory have no class of their own
        if "allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise ModelError(f"no memory for {what} on {device}{_left(device)}; {advice}") from error


def _left(device: torch.device) -> str:
    if device.type != "cuda":
        return ""
    free, total = torch.cuda.mem_get_info(device)
    return f": {_gib(free)} of {_gib(total)} are free"


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def current(device: torch.device) -> AbstractContextManager:
    """Make `device` the one that streams and graphs are made for; nothing on the CPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def stream_id(device: torch.device) -> int:
    """Which stream this thread's work goes to; 0 on the CPU."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def send(host: Tensor, device: torch.device) -> Tensor:
    """A copy of a small host tensor on `device`, without waiting: from pinned memory where that is a GPU.

    torch keeps the pinned memory from being used again before the copy is over.
    """
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)
