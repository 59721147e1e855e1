import sys

import pytest
from hydra.core.global_hydra import GlobalHydra

from segmeter.cli.app import read_arguments
from segmeter.cli.hydra_app import _flags, run_by_hydra
from segmeter.errors import ConfigError


@pytest.fixture(autouse=True)
def fresh_hydra(monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


def test_flags_are_written_again_for_hydra():
    args = read_arguments("train", ["seed=1", "--cfg", "hydra", "-p", "hydra.run", "--resolve", "-cn", "own"])
    assert _flags(args) == ["--resolve", "--cfg=hydra", "--package=hydra.run", "--config-name=own"]
    assert _flags(read_arguments("train", ["seed=1"])) == []


def test_hydras_own_view_is_printed_and_the_arguments_are_put_back(capsys):
    before = list(sys.argv)
    run_by_hydra("check", read_arguments("check", ["--cfg", "hydra", "-p", "hydra.job"]), ())
    assert "name:" in capsys.readouterr().out
    assert sys.argv == before


def test_a_fault_in_the_job_comes_out_as_it_is(monkeypatch):
    def fail(config, job):
        raise ConfigError(f"{job.command} failed")

    monkeypatch.setattr("segmeter.cli.hydra_app.run_job", fail)
    before = list(sys.argv)
    with pytest.raises(ConfigError, match=r"^check failed$"):
        run_by_hydra("check", read_arguments("check", ["data=cells"]), ())
    assert sys.argv == before
