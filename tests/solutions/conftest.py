"""These tests execute every notebook twice, in minutes: they run when they are asked for by path, as a stage of
their own (`python3 -m lab test solutions`), and not as part of `pytest tests`."""

from pathlib import Path

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(collection_path, config):
    asked = (Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(HERE) for path in asked) else True
