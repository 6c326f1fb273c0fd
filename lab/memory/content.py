"""What a block holds, as something that can be compared: its tokens, or the trace's word for them.

Two blocks with equal content *and equal blocks before them* hold equal keys and values.
"""

from __future__ import annotations

from lab.request import Request


def block_contents(request: Request, block_size: int, num_blocks: int) -> list[tuple]:
    """Contents of the request's first `num_blocks` full blocks, computed once and kept on the request.

    A request without text has content only where `block_keys` say what its prompt shares (one key per
    `key_size` tokens, `key_size` a multiple of `block_size`); and output that was only priced has none. The list is
    shorter then.
    """
    contents = request.contents
    if request.prompt is not None:
        num_blocks = min(num_blocks, (request.num_prompt + len(request.output)) // block_size)
    if len(contents) < num_blocks:
        if request.prompt is None:
            _from_keys(request, block_size, num_blocks)
        else:
            first = len(contents) * block_size
            tokens = request.tokens(first, num_blocks * block_size)
            contents.extend(
                tuple(tokens[start : start + block_size])
                for start in range(0, num_blocks * block_size - first, block_size)
            )
    return contents[:num_blocks]


def _from_keys(request: Request, block_size: int, num_blocks: int) -> None:
    parts = request.key_size // block_size
    known = min(num_blocks, request.num_prompt // block_size, len(request.block_keys) * parts)
    for index in range(len(request.contents), known):
        request.contents.append((request.block_keys[index // parts], index % parts))
