"""`segmeter doctor`: what an install is, and each thing that is wrong with it."""

import sys
from types import ModuleType

import pytest

from segmeter.cli.commands import doctor
from segmeter.errors import RunError
from segmeter.records import hardware, versions


def faults(capsys: pytest.CaptureFixture[str]) -> tuple[str, ...]:
    with pytest.raises(RunError) as error:
        doctor.run_doctor([])
    assert error.value.exit_code == 3
    assert "Nothing is wrong" not in capsys.readouterr().out
    return error.value.problems


def test_versions_and_devices_are_shown(capsys):
    doctor.run_doctor([])
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert all([name, version] in rows for name, version in versions().items())
    assert ["cores", str(hardware()["cores"])] in rows
    assert out.endswith("\nNothing is wrong with this install.\n")


@pytest.mark.parametrize(("name", "line"), [
    ("torch", "doctor: torch does not work: RuntimeError: no ones."),
    ("torchvision", f"doctor: torchvision does not work: RuntimeError: no ops. {doctor._PAIR}"),
])  # fmt: skip
def test_a_library_that_breaks_when_it_is_used_is_named(name, line, monkeypatch, capsys):
    broken = ModuleType(name)
    broken.__getattr__ = lambda attribute: (_ for _ in ()).throw(RuntimeError(f"no {attribute}\nmore lines"))
    monkeypatch.setattr(doctor, "hardware", lambda: {"cuda": []})  # which asks torch
    monkeypatch.setitem(sys.modules, name, broken)
    assert line in faults(capsys)


def test_what_is_missing_is_said_and_torch_is_not_missed_in_the_light_install(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "versions", lambda: {"numpy": None, "torch": None, "zarr": None})
    lines = [f"doctor: {name} is missing. Install segmeter again." for name in ("numpy", "torch")]
    assert faults(capsys) == tuple(lines)
    monkeypatch.setattr(doctor, "_is_installed", lambda name: name == "segmeter-score")
    assert faults(capsys) == tuple(lines[:1])
    monkeypatch.setattr(doctor, "_is_installed", lambda name: True)
    assert faults(capsys)[0].startswith("doctor: segmeter and segmeter-score are both installed")
