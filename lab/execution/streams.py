"""What a lane's thread needs so that its steps run beside those of other lanes: cores of its own, or a CUDA stream.

On the CPU every lane gets a core of its own; where there are more cores than lanes, the lanes take turns with all of
them, job by job. Either way they really run at the same time. On a GPU every lane gets a stream; the first, in which
decodes run where phases are apart, has the higher priority, which decides whose blocks are scheduled first when both
wait, and interrupts nothing that runs. Streams do not divide the multiprocessors (SMs) among themselves; a green
context does, for kernels of all streams within it (CUDA driver API, "Green Contexts"; torch.cuda.green_contexts, beta).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from lab.errors import ModelError


@contextmanager
def surroundings(device: torch.device, lane: int, lanes: int, fraction: float = 1.0) -> Iterator[None]:
    """Enter in the thread of `lane` (0 to `lanes` - 1); `fraction` < 1 confines it to that share of a GPU's SMs.

    Raises ModelError where a fraction is asked for and cannot be had.
    """
    if device.type == "cuda":
        with _stream(device, lane, fraction):
            yield
        return
    if fraction < 1:
        raise ModelError(
            f"lane {lane} is confined to {fraction:.0%} of the arithmetic: on a CPU every lane has its cores, and only "
            f"a simulated device or a GPU with green contexts can be divided further"
        )
    from lab.execution.cores import in_turns, one_core

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // lanes))  # of the thread that calls this, and those it will start
    try:
        with one_core() if before <= lanes else in_turns():
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _stream(device: torch.device, lane: int, fraction: float) -> Iterator[None]:
    with torch.cuda.device(device), ExitStack() as undo:
        if fraction < 1:
            context = _green_context(device, fraction)
            context.set_context()
            undo.callback(context.pop_context)
            stream = context.Stream()  # a stream made elsewhere would leave the context
        else:
            stream = torch.cuda.Stream(device, priority=-1 if lane == 0 else 0)
        stream.wait_stream(torch.cuda.default_stream(device))  # weights and pool are there
        with torch.cuda.stream(stream):
            yield
            stream.synchronize()


def _green_context(device: torch.device, fraction: float):
    """A context over that share of the SMs. Raises ModelError where torch or the driver offers none."""
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = max(1, round(sms * fraction))
    try:
        from torch.cuda.green_contexts import GreenContext

        return GreenContext.create(num_sms=wanted, device_id=device.index)
    except (ImportError, RuntimeError) as error:
        raise ModelError(
            f"{wanted} of {sms} SMs for one lane: green contexts are not to be had ({error}); leave the fraction away"
        ) from error
