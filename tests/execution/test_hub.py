"""Names on the hub: what counts as one, which files are asked for, and what is said when they do not come."""

from __future__ import annotations

from fnmatch import fnmatch

import huggingface_hub
import pytest
from huggingface_hub import errors

from lab.errors import ModelError
from lab.execution.hub import FILES, is_hub_name
from lab.execution.model import load_model


@pytest.mark.parametrize("name", ["Qwen/Qwen2-0.5B-Instruct", "a/b", "o/m.1_x@refs/pr/3", "o/m@0123abcd"])
def test_owner_and_name_is_a_hub_name(name):
    assert is_hub_name(name)


@pytest.mark.parametrize("name", ["tiny", "./a/b", "/a/b", "a/b/c", "../b", "~/b", "a/", "/b", "a b/c", "a/b@", "-a/b"])
def test_paths_and_plain_names_are_not(name):
    assert not is_hub_name(name)


def test_only_weights_tokenizer_and_configuration_are_asked_for():
    """Files of real repositories; a pickle can run code, and some hold the weights a second time."""
    wanted = ["config.json", "model.safetensors", "model-00001-of-00004.safetensors", "model.safetensors.index.json"]
    wanted += ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]
    refused = ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "modeling_llama.py", "README.md"]
    refused += ["consolidated.safetensors", "original/consolidated.00.pth", "tf_model.h5", "adapter_model.safetensors"]
    assert [name for name in wanted + refused if any(fnmatch(name, pattern) for pattern in FILES)] == wanted


def test_a_name_loads_the_folder_the_hub_gives(llama_folder, monkeypatch, drive):
    asked = []

    def snapshot(repository, **options):
        asked.append((repository, options))
        return str(llama_folder("gqa"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    model = load_model("owner/small@0123abcd")
    assert model.name == "owner/small@0123abcd"
    assert asked == [("owner/small", {"revision": "0123abcd", "allow_patterns": list(FILES)})]
    assert len(drive(model).generate([[5, 6, 7]], 3)[0]) == 3


def test_a_folder_of_that_name_comes_first(llama_folder, monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: pytest.fail("asked the hub"))
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "small").symlink_to(llama_folder("gqa"))
    monkeypatch.chdir(tmp_path)
    assert load_model("owner/small").name == "small"


def response_error(kind):
    """The hub's HTTP errors carry a response; what we say does not depend on it."""
    error = kind.__new__(kind)
    Exception.__init__(error, "401 Client Error")
    return error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            response_error(errors.GatedRepoError),
            "accept its licence: do so on https://huggingface.co/o/m, then run",
        ),
        (response_error(errors.RepositoryNotFoundError), "no public model 'o/m'"),
        (response_error(errors.RevisionNotFoundError), "o/m has no revision 'v9'"),
        (
            errors.LocalEntryNotFoundError("cannot find the snapshot\nlong text"),
            r"\(cannot find the snapshot\): go",
        ),
        (errors.OfflineModeIsEnabled("offline mode"), r"\(offline mode\): go online once .* or give the path"),
        (ConnectionError(), r"\(ConnectionError\)"),
        (OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_what_goes_wrong_is_said_with_what_to_do(error, message, monkeypatch):
    def snapshot(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(ModelError, match=message):
        load_model("o/m@v9")


def test_offline_without_patches(monkeypatch, tmp_path):
    """The real client, told to stay offline, with an empty cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="neither a folder here nor could it be fetched from the hub"):
        load_model("Qwen/Qwen2-0.5B-Instruct")
