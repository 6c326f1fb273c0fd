"""Checkpoints by name from the Hugging Face Hub: safetensors, tokenizer and configuration; nothing that can run."""

from __future__ import annotations

import re
from pathlib import Path

from lab.errors import ModelError

#: What is fetched. No pickles (.bin, .pt), no code, no second copies of the weights (consolidated*, original/*).
FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")


def is_hub_name(name: object) -> bool:
    """True for text like "owner/model" or "owner/model@revision"."""
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def fetch(name: str) -> Path:
    """The folder of a checkpoint in the hub's own cache, downloaded first where it is not there.

    A revision is resolved to a commit, and each file is kept under its checksum, as the hub does; "@" and a commit
    id pin the checkpoint for good. Raises ModelError, with what to do, for a name that is not there, needs a login,
    or cannot be reached.
    """
    from huggingface_hub import errors as hub
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(FILES)))
    except hub.GatedRepoError:
        raise ModelError(
            f"{repository} is given only to those who accept its licence: do so on "
            f"https://huggingface.co/{repository}, then run `hf auth login`"
        ) from None
    except hub.RepositoryNotFoundError:
        raise ModelError(f"the hub has no public model {repository!r}: check the spelling, or log in") from None
    except hub.RevisionNotFoundError:
        raise ModelError(f"{repository} has no revision {revision!r}") from None
    except (OSError, hub.HfHubHTTPError, hub.HFValidationError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"{name} is neither a folder here nor could it be fetched from the hub ({first}): go online once (the "
            f"download is kept), or give the path of a checkpoint folder, or lab.load_model() for the default model"
        ) from None
