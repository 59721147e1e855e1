"""`segmeter doctor`: what an install is, and each thing that is wrong with it."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from segmeter.cli.commands import doctor
from segmeter.errors import RunError
from segmeter.records import hardware, versions


def problems(capsys: pytest.CaptureFixture[str]) -> tuple[str, ...]:
    with pytest.raises(RunError) as error:
        doctor.run_doctor([])
    assert error.value.exit_code == 3
    assert "Nothing is wrong" not in capsys.readouterr().out
    return error.value.problems


def test_versions_and_devices_are_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    doctor.run_doctor([])
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert all([name, version] in rows for name, version in versions().items())
    assert ["cores", str(hardware()["cores"])] in rows
    assert out.endswith("\nNothing is wrong with this install.\n")
    assert not list(tmp_path.iterdir()), "the folder is tried and left as it was"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("torch", ""), ("torchvision", " torch and torchvision do not belong together: install the pair that")],
)
def test_a_library_that_breaks_when_it_is_used_is_named(name, remedy, monkeypatch, capsys):
    broken = ModuleType(name)
    broken.__getattr__ = lambda attribute: (_ for _ in ()).throw(RuntimeError(f"no {attribute}\nmore lines"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, name, broken)
        check = {"torch": doctor._torch, "torchvision": doctor._vision}[name]
        found = check()
    used = {"torch": "ones", "torchvision": "ops"}[name]
    assert found.startswith(f"{name} does not work: RuntimeError: no {used}.{remedy}")
    monkeypatch.setattr(doctor, check.__name__, lambda: found)
    assert problems(capsys) == (f"doctor: {found}",)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch", None)  # both distributions were installed, and torch was removed since
    monkeypatch.setattr(doctor, "_vision", lambda: None)
    assert problems(capsys)[0].startswith("doctor: torch does not work: ModuleNotFoundError")


def test_a_folder_that_can_not_be_written_is_named_with_the_remedy(monkeypatch, capsys):
    monkeypatch.chdir("/proc/self")
    (line,) = problems(capsys)
    assert line.startswith("doctor: this folder can't be written (")
    assert line.endswith(f"): {Path.cwd()}. Set run.root to one that can.")


def test_what_is_missing_and_what_is_broken_is_said_at_once(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "versions", lambda: {"numpy": None, "torch": "2"})
    monkeypatch.setattr(doctor, "_vision", lambda: "torchvision does not work.")
    assert problems(capsys) == (
        "doctor: torchvision does not work.",
        "doctor: numpy is missing. Install segmeter again.",
    )
