"""A computer without an NVIDIA GPU never gets a CUDA build of torch silently."""

import json

import pytest

from lab.setup import pip as pip_calls
from lab.setup import process, torch_source
from lab.setup.console import SetupError

CPU_DEPENDS = ["filelock", "sympy>=1.13.3", "jinja2"]
CUDA_DEPENDS = [*CPU_DEPENDS, 'nvidia-cudnn-cu12==9.1; platform_system == "Linux"', "triton==3.5"]


def report(version, depends):
    return {"install": [{"metadata": {"version": version, "requires_dist": depends}}]}


@pytest.mark.parametrize(
    ("version", "depends", "cuda"),
    [
        ("2.13.0+cpu", CPU_DEPENDS, False),
        ("2.13.0", CPU_DEPENDS, False),
        ("2.13.0", CUDA_DEPENDS, True),
        ("2.13.0", ["cuda-toolkit[cublas]==13.0; platform_system == 'Linux'"], True),
        ("2.13.0+cu130", CPU_DEPENDS, True),
        ("2.13.0", ['nvidia-ml-py; extra == "monitor"'], False),
        ("2.13.0", [], False),
    ],
)
def test_reads_the_build_from_pips_report(version, depends, cuda):
    assert torch_source.read_offer(report(version, depends)) == torch_source.Offer(version, cuda)


def test_report_without_dependencies():
    assert not torch_source.read_offer({"install": [{"metadata": {"version": "2.13.0"}}]}).cuda


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """A pip that offers what `offer` holds, fails where `fails` says so, and lists its calls."""

    class Pip:
        offer = report("2.13.0", CUDA_DEPENDS)
        fails: tuple[str, ...] = ()
        output = ""
        calls: list[str] = []

        def __call__(self, *arguments, **_):
            words = [str(a) for a in arguments]
            self.calls.append(" ".join(words))
            if "--report" in words:
                path = words[words.index("--report") + 1]
                with open(path, "w") as out:
                    json.dump(self.offer, out)
            failed = any(word in self.calls[-1] for word in self.fails)
            return process.Result(int(failed), self.output if failed else "")

    fake = Pip()
    fake.calls = []
    monkeypatch.setattr(pip_calls, "pip", fake)
    monkeypatch.setattr(torch_source, "venv_dir", lambda: tmp_path)
    monkeypatch.setattr(torch_source, "installed_version", lambda: None)
    monkeypatch.setattr(torch_source, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(torch_source, "check_space", lambda folder, mb: None)
    return fake


def test_torch_that_is_there_is_used(pip, monkeypatch):
    monkeypatch.setattr(torch_source, "installed_version", lambda: "2.13.0+cu130")
    torch_source.install_torch("2.13.0", platform="linux")
    assert pip.calls == []


def test_another_version_is_replaced(pip, monkeypatch):
    monkeypatch.setattr(torch_source, "installed_version", lambda: "2.12.0")
    pip.offer = report("2.13.0+cpu", CPU_DEPENDS)
    torch_source.install_torch("2.13.0", platform="linux")
    assert pip.calls[-1] == "install torch==2.13.0"


def test_cpu_build_comes_from_the_package_index(pip):
    pip.offer = report("2.13.0+cpu", CPU_DEPENDS)
    torch_source.install_torch("2.13.0", platform="linux")
    assert pip.calls[-1] == "install torch==2.13.0"


def test_without_gpu_a_cuda_offer_leads_to_the_cpu_index(pip):
    torch_source.install_torch("2.13.0", platform="linux")
    assert "--dry-run" in pip.calls[0]
    assert pip.calls[1:] == [f"install --no-deps --index-url {torch_source.CPU_INDEX} torch==2.13.0"]


def test_unreachable_cpu_index_stops_with_size_and_option(pip):
    pip.fails, pip.output = (torch_source.CPU_INDEX,), "Max retries exceeded"
    with pytest.raises(SetupError) as stop:
        torch_source.install_torch("2.13.0", platform="linux")
    assert "--allow-cuda" in str(stop.value) and torch_source.CUDA_SIZE in str(stop.value)
    assert not any(call == "install torch==2.13.0" for call in pip.calls)


def test_full_disk_is_not_blamed_on_the_index(pip):
    pip.fails, pip.output = (torch_source.CPU_INDEX,), "[Errno 28] No space left on device"
    with pytest.raises(SetupError, match="disk is full"):
        torch_source.install_torch("2.13.0", platform="linux")


@pytest.mark.parametrize("how", ["gpu", "allowed"])
def test_cuda_build_when_wanted(pip, monkeypatch, capsys, how):
    monkeypatch.setattr(torch_source, "has_nvidia_gpu", lambda: how == "gpu")
    torch_source.install_torch("2.13.0", allow_cuda=how == "allowed", platform="linux")
    assert pip.calls[-1] == "install torch==2.13.0"
    assert torch_source.CUDA_SIZE in capsys.readouterr().out


def test_mac_and_windows_take_the_package_index(pip):
    torch_source.install_torch("2.13.0", platform="darwin")
    assert pip.calls == ["install torch==2.13.0"]


def test_no_network_at_the_probe_is_one_sentence(pip):
    pip.fails, pip.output = ("--dry-run",), "NameResolutionError: Temporary failure in name resolution"
    with pytest.raises(SetupError, match="cannot be reached"):
        torch_source.install_torch("2.13.0", platform="linux")
