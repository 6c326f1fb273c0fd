"""Set-up resumes where it stopped; every mistake is one sentence with an exit code; nothing needs a network."""

import os
import subprocess
import sys
import threading
import time

import pytest

from lab import bootstrap
from lab.setup import commands, fetch_model, paths, stamp, torch_source, venv
from lab.setup.console import SetupError
from lab.setup.lock import only_one


@pytest.fixture(autouse=True)
def environment_is_given_back(monkeypatch):
    monkeypatch.setenv("LAB_DATA_DIR", str(paths.data_dir()))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A repository in tmp_path whose steps are recorded instead of done; `fails_at` stops one of them."""

    class Place:
        root = tmp_path
        did: list[str] = []
        fails_at = None

        def step(self, name):
            def do(*_, **__):
                if self.fails_at == name:
                    raise SetupError(f"{name} stopped.")
                self.did.append(name)

            return do

    place = Place()
    place.did = []
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\nnumpy==2.4.6  # note\n")
    python = tmp_path / ".venv" / "bin" / "python"

    def make_venv():
        place.step("venv")()
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text("")

    for module in (bootstrap, stamp, venv):
        monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(module, "venv_dir", lambda: tmp_path / ".venv", raising=False)
    for module in (bootstrap, venv):
        monkeypatch.setattr(module, "venv_python", lambda: python)
    monkeypatch.setattr(venv, "make_venv", make_venv)
    monkeypatch.setattr(venv, "complete_without_venv", lambda: False)
    monkeypatch.setattr(venv, "check_space", lambda folder, mb: None)
    monkeypatch.setattr(torch_source, "install_torch", place.step("torch"))
    monkeypatch.setattr(torch_source, "installed_version", lambda: "2.13.0+cpu")
    monkeypatch.setattr(bootstrap, "install", lambda what, *_: place.step(what)())
    monkeypatch.setattr(fetch_model, "is_complete", lambda *_: "model" in place.did)
    monkeypatch.setattr(fetch_model, "fetch", place.step("model"))
    return place


ALL = ["venv", "torch", "the packages", "the project", "model"]


def test_all_steps_once_then_none(place, capsys):
    bootstrap.set_up()
    assert place.did == ALL
    assert "Set-up is complete" in capsys.readouterr().out
    bootstrap.set_up()
    assert place.did == ALL
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("stop", ALL)
def test_goes_on_where_it_stopped(place, stop):
    place.fails_at = stop
    with pytest.raises(SetupError, match=f"{stop} stopped"):
        bootstrap.set_up()
    place.fails_at = None
    bootstrap.set_up()
    assert place.did == ALL


def test_changed_pins_install_again_but_keep_torch(place):
    bootstrap.set_up()
    place.did[:] = ["model"]
    (place.root / "requirements.txt").write_text("torch==2.13.0\nnumpy==2.4.7\n")
    bootstrap.set_up()
    assert place.did == ["model", "the packages", "the project"]


def test_changed_comments_do_not_install_again(place):
    bootstrap.set_up()
    place.did[:] = ["model"]
    (place.root / "requirements.txt").write_text("# hello\ntorch==2.13.0\nnumpy==2.4.6\n")
    bootstrap.set_up()
    assert place.did == ["model"]


def test_changed_torch_pin_installs_torch_again(place):
    bootstrap.set_up()
    place.did[:] = ["model"]
    (place.root / "requirements.txt").write_text("torch==2.14.0\nnumpy==2.4.6\n")
    bootstrap.set_up()
    assert place.did == ["model", "torch", "the packages", "the project"]


def test_damaged_stamp_is_no_disaster(place):
    bootstrap.set_up()
    (place.root / ".venv" / "lab-stamp.json").write_text("{")
    place.did[:] = ["model"]
    bootstrap.set_up()
    assert place.did == ["model", *ALL[:-1]]


def test_packages_are_held_to_the_chosen_torch(place):
    bootstrap.set_up()
    assert (place.root / ".venv" / "lab-torch.txt").read_text() == "torch==2.13.0+cpu\n"


@pytest.mark.parametrize(
    ("installed", "complete"),
    [
        ({"llm-batching-lab": "0.1.0", "torch": "2.13.0+cpu", "numpy": "2.4.6"}, True),
        ({"llm-batching-lab": "0.1.0", "torch": "2.13.0", "numpy": "2.4.5"}, False),
        ({"llm-batching-lab": "0.1.0", "torch": "2.13.0"}, False),
        ({"torch": "2.13.0", "numpy": "2.4.6"}, False),
    ],
)
def test_a_conda_environment_with_every_pin_needs_no_venv(tmp_path, monkeypatch, installed, complete):
    def version(name):
        if name not in installed:
            raise venv.metadata.PackageNotFoundError(name)
        return installed[name]

    (tmp_path / "requirements.txt").write_text("torch==2.13.0\nnumpy==2.4.6\n")
    monkeypatch.setattr(stamp, "ROOT", tmp_path)
    monkeypatch.setattr(venv, "venv_dir", lambda: tmp_path / ".venv")
    monkeypatch.setattr(venv.metadata, "version", version)
    assert venv.complete_without_venv() is complete


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_wrong_python_is_one_sentence(version):
    with pytest.raises(SetupError, match="needs Python 3.11, 3.12 or 3.13"):
        venv.check_python(version)


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13)])
def test_right_pythons(version):
    venv.check_python(version)


def test_no_space_names_both_numbers(tmp_path):
    with pytest.raises(SetupError, match=r"needs 1000000\.0 GB of free disk and there are [\d.]+ [GM]B"):
        venv.check_space(tmp_path / "not" / "there", 1e9)


def test_missing_venv_module_says_what_to_install(monkeypatch):
    monkeypatch.setattr(venv.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(SetupError, match="apt install python3-venv"):
        venv.make_venv()


def test_errors_are_one_sentence_and_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "set_up", lambda **_: (_ for _ in ()).throw(SetupError("No network.")))
    assert bootstrap.main(["--setup-only"]) == 1
    assert capsys.readouterr().err == "Stopped: No network.\n"


def test_interrupt_says_how_to_go_on(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "set_up", lambda **_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert bootstrap.main(["setup"]) == 130
    assert "goes on where this one stopped" in capsys.readouterr().err


def test_unknown_command_names_the_commands_without_setting_up(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "set_up", lambda **_: pytest.fail("set up for a mistake"))
    assert bootstrap.main(["docter"]) == 2
    err = capsys.readouterr().err
    assert "Did you mean doctor?" in err and "compare" in err


def test_help_lists_every_command_without_setting_up(monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "set_up", lambda **_: pytest.fail("set up for help"))
    assert bootstrap.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*commands.OWN, "run", "compare"))


@pytest.mark.parametrize("command", list(commands.OWN))
def test_every_own_command_has_help(command, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "set_up", lambda **_: pytest.fail("set up for help"))
    with pytest.raises(SystemExit) as ended:
        bootstrap.main([command, "--help"])
    assert ended.value.code == 0
    assert "usage: python3 -m lab" in capsys.readouterr().out


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1"])
def test_bad_port_is_a_mistake(port, capsys):
    with pytest.raises(SystemExit) as ended:
        commands.parse_own("open", [f"--port={port}"])
    assert ended.value.code == 2
    assert "is not a port number" in capsys.readouterr().err


def test_options_without_a_command_belong_to_open():
    assert commands.split(["--no-browser"]) == ("open", ["--no-browser"])
    assert commands.split([]) == ("open", [])


def test_test_passes_arguments_on_to_pytest():
    options = commands.parse_own("test", ["unit", "-k", "fuzz", "-x"])
    assert (options.stage, options.pytest_args) == ("unit", ["-k", "fuzz", "-x"])


def test_two_set_ups_wait_for_each_other(tmp_path, capsys):
    lock, order = tmp_path / "lock", []

    def second():
        with only_one(lock, "the set-up"):
            order.append("second")

    with only_one(lock, "the set-up"):
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.3)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert "Another process is busy" in capsys.readouterr().out


def test_data_dir_moves_with_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("LAB_DATA_DIR", raising=False)
    assert paths.model_dir("m") == paths.ROOT / "data" / "models" / "m"
    monkeypatch.setenv("LAB_DATA_DIR", str(tmp_path))
    assert paths.model_dir("m") == tmp_path / "models" / "m"


def test_set_up_code_needs_only_the_standard_library():
    """Imported with -S and -I there is no site-packages at all."""
    code = (
        f"import sys; sys.path.insert(0, {str(paths.ROOT)!r});"
        "import lab, lab.bootstrap, lab.setup.launch, lab.setup.testing;"
        "sys.exit(lab.bootstrap.main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: python3 -m lab" in done.stdout


def test_main_parses_on_old_pythons():
    import ast

    for name in ("__init__.py", "__main__.py"):
        ast.parse((paths.ROOT / "lab" / name).read_text(), feature_version=(3, 8))


def test_environment_carries_an_absolute_data_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_DATA_DIR", "shared")
    monkeypatch.setattr(bootstrap, "set_up", lambda **_: (_ for _ in ()).throw(SetupError("enough.")))
    bootstrap.main(["setup"])
    assert os.environ["LAB_DATA_DIR"] == str(tmp_path / "shared")
