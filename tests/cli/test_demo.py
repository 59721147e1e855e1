"""`segmeter demo`: the commands that it runs, in their order, each on what the one before left."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from segmeter.cli import app as demo
from segmeter.data.verification import report
from segmeter.errors import ConfigError


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """The commands that are run; each leaves the folder of a run."""
    monkeypatch.chdir(tmp_path)
    first = SimpleNamespace(image=Path("data/my cells/images/0.png"))
    monkeypatch.setattr(report, "build_dataset", lambda config, split: SimpleNamespace(pairs=[first]))
    found = []

    def run_command(command, overrides):
        found.append((command, *overrides))
        root = [line.removeprefix("run.root=") for line in overrides if line.startswith("run.root=")]
        for path in root:
            for name in ("2026-01-01_000000_cells", "2026-01-01_000000_cells-2"):
                (Path(path) / command / name).mkdir(parents=True)

    monkeypatch.setattr(demo, "run_command", run_command)
    return found


def test_each_step_takes_what_the_one_before_left(commands, capsys):
    demo.run_demo(["mine"])
    (root,) = Path("mine").iterdir()
    assert root.name.startswith("demo-")
    trained, evaluated = root / "train/2026-01-01_000000_cells-2", root / "eval/2026-01-01_000000_cells-2"
    exports = ("postprocess=cells", "export.probs=true", "export.instances=true")
    assert commands == [
        ("check", "data=cells"),
        ("train", "experiment=demo", f"run.root={root}"),
        ("eval", f"checkpoint={trained}", *exports, f"run.root={root}"),
        ("predict", f"checkpoint={trained}", "input=data/my cells/images", f"run.root={root}"),
    ]
    out = capsys.readouterr().out
    assert out.count("\n$ segmeter ") == 4
    assert "'input=data/my cells/images'" in out, "as a shell takes it"
    for name in ("metrics.json", "overlays", "report.html"):
        assert str(evaluated / name) in out


def test_demos_of_the_same_second_share_no_folder_among_the_other_runs(commands, monkeypatch):
    """Or one would evaluate what the other trains. Mutation seen to fail: a folder that is there already."""
    monkeypatch.setattr(demo, "datetime", type("Stopped", (), {"now": staticmethod(lambda: datetime(2026, 1, 1))}))
    for _ in range(2):
        demo.run_demo([])
    names = ["demo-2026-01-01_000000", "demo-2026-01-01_000000-2"]
    assert sorted(str(path) for path in Path().glob("*/*")) == [f"runs/{name}" for name in names]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["a", "b"], "demo: expected at most a folder, got 'a b'. Use train and eval to set values."),
        (["run.root=x"], "demo: expected at most a folder, got 'run.root=x'. Use train and eval to set values."),
        (["file/below"], "config: expected `run.root` to be a folder that can be written, got "),
    ],
)
def test_it_takes_a_folder_that_can_be_made_and_nothing_else(commands, arguments, line):
    Path("file").touch()
    with pytest.raises(ConfigError) as error:
        demo.run_demo(arguments)
    assert error.value.problems[0].startswith(line)
    assert commands == []
