"""Text to token ids and back, and the chat format a model was trained on.

Reads what Hugging Face tokenizers store (`tokenizer.json`, a Jinja chat template) without importing
transformers, which alone would cost a learner several seconds per notebook.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from lab.errors import ModelError
from lab.execution.config import read_json
from lab.numbers import whole

Messages = str | Sequence[dict[str, str]]


class Tokenizer(Protocol):
    """What the rest of the lab asks of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text."""
        ...

    def encode_chat(self, messages: Messages) -> list[int]:
        """Token ids of a conversation, ending where the assistant is to answer. A string is one user message."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        ...


def as_messages(messages: Messages) -> list[dict[str, str]]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


class ChatTokenizer:
    """`tokenizer.json` plus the checkpoint's own chat template."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer as FastTokenizer

        settings = read_json(folder / "tokenizer_config.json")
        self._folder = folder
        try:
            self._fast = FastTokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing more specific
            raise ModelError(f"{folder / 'tokenizer.json'} is damaged: {error}") from error
        self._template = _find_template(folder, settings)
        self._special = {name: _token_text(settings[name]) for name in ("bos_token", "eos_token") if settings.get(name)}

    def encode(self, text: str) -> list[int]:
        return self._fast.encode(text).ids

    def encode_chat(self, messages: Messages) -> list[int]:
        return self._fast.encode(self.render(messages), add_special_tokens=False).ids

    def render(self, messages: Messages) -> str:
        """The conversation as the text the model sees."""
        if self._template is None:
            raise ModelError(f"{self._folder} has no chat template: use encode() instead of encode_chat()")
        given = {"messages": as_messages(messages), "add_generation_prompt": True, "tools": None, "documents": None}
        try:
            return _environment().from_string(self._template).render(**given, **self._special)
        except Exception as error:  # a template is a program that came with the weights: anything can happen in it
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(f"the chat template of {self._folder} fails on these messages ({reason})") from error

    def decode(self, ids: Sequence[int]) -> str:
        return self._fast.decode(list(ids), skip_special_tokens=True)

    def token_id(self, token: str) -> int | None:
        return self._fast.token_to_id(token)


class ByteTokenizer:
    """The tokenizer of `tiny`: a token per UTF-8 byte, then bos and eos. Other ids print as <id>."""

    BOS, EOS = 256, 257

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))

    def encode_chat(self, messages: Messages) -> list[int]:
        turns = [f"{message['role']}: {message['content']}\n" for message in as_messages(messages)]
        return [self.BOS, *self.encode("".join(turns) + "assistant: ")]

    def decode(self, ids: Sequence[int]) -> str:
        text = b"".join(bytes([i]) if i < self.BOS else f"<{i}>".encode() for i in ids if i not in (self.BOS, self.EOS))
        return text.decode("utf-8", errors="replace")


class NoTokenizer:
    """Stands in where a checkpoint has no tokenizer: the model runs on token ids, text is refused."""

    def __init__(self, folder: Path):
        self._folder = folder

    def _refuse(self, _: Any) -> Any:
        raise ModelError(f"{self._folder} has no tokenizer.json: give prompts as token ids")

    encode = encode_chat = decode = _refuse


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in `folder`, or one that refuses text where there is none."""
    return ChatTokenizer(folder) if (folder / "tokenizer.json").is_file() else NoTokenizer(folder)


def read_eos_ids(folder: Path, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Every token that ends an answer: from generation_config.json or config.json, and the tokenizer's eos.

    Raises ModelError where a file names something that is no token id.
    """
    ids = _eos_in(folder / "generation_config.json") or _eos_in(folder / "config.json")
    eos = read_json(folder / "tokenizer_config.json").get("eos_token")
    if eos and isinstance(tokenizer, ChatTokenizer):
        ids.append(tokenizer.token_id(_token_text(eos)))
    return tuple(dict.fromkeys(i for i in ids if i is not None))


def _eos_in(path: Path) -> list[int | None]:
    found = read_json(path).get("eos_token_id")
    ids = [] if found is None else list(found) if isinstance(found, list) else [found]
    for token in ids:
        whole(token, f"{path}: an eos_token_id of", 0, ModelError)
    return ids


def _token_text(token: str | dict[str, Any]) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _find_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """chat_template.jinja, or the older places inside tokenizer_config.json (a string, or a list of named ones)."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise ModelError(f"{folder / 'tokenizer_config.json'}: its chat_template is a {type(template).__name__}")
    return template


def _environment() -> Any:
    """Jinja as transformers sets it up: sandboxed, since a template is code that came with the weights."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    return environment
