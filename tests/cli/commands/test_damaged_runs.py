"""Records of runs that are damaged, changed or planted: each command says so in one line, and none waits or crashes."""

import json
import os
import shutil
from pathlib import Path

import pytest

from segmeter import __version__
from tests.cli.sharded import SCORE, change_record, newest, run, run_shards
from tests.deadline import deadline

pytestmark = pytest.mark.usefixtures("in_here")

FAST = (*SCORE, "images=null", "metrics.measures=[]", "report.overlays=0", "report.worst=0")
DEEP = '{"a": ' + "[" * 100_000


@pytest.fixture(scope="module")
def halves(here: Path) -> list[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        return [path.absolute() for path in run_shards("score", 2, *FAST, "seed=5")]


@pytest.fixture
def runs(halves: list[Path], tmp_path: Path) -> list[Path]:
    """Two shards of a run, as copies that a test may damage."""
    for number, folder in enumerate(halves):
        shutil.copytree(folder, tmp_path / "runs" / f"s{number}")
    return sorted((tmp_path / "runs").iterdir())


@pytest.fixture(scope="module")
def finished(here: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert run("score", *FAST, "seed=5", "run.name=all") == 0
        return newest("runs/score").absolute()


@pytest.fixture
def scored(finished: Path, tmp_path: Path) -> Path:
    """A finished run, as a copy that a test may damage."""
    return Path(shutil.copytree(finished, tmp_path / "alone"))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and all that a command says of what is wrong."""
    capsys.readouterr()
    with deadline(200):  # of a busy machine
        code = run(*arguments)
    return code, capsys.readouterr().err


def joined(runs: list[Path]) -> str:
    return f"runs=[{','.join(map(str, runs))}]"


def plant(path: Path, content: str | None) -> None:
    """Put a text, or with None a FIFO, in the place of a file."""
    path.unlink()
    if content is None:
        os.mkfifo(path)
    else:
        path.write_text(content)


BROKEN = [pytest.param(DEEP, id="deep"), pytest.param(None, id="fifo"), pytest.param("[1]", id="list")]


REFUSING = [
    *(("merge", name) for name in ("run.json", "manifest.json", "config.yaml")),
    *(("report", name) for name in ("run.json", "metrics.json")),
    ("compare", "metrics.json"),
    *(("score", name) for name in ("manifest.json", "config.yaml")),  # that resumes
]


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize(("command", "name"), REFUSING)
def test_a_damaged_record_is_refused_in_one_line_and_nothing_changes(
    command, name, content, runs, scored, finished, capsys
):
    folder = runs[1] if command == "merge" else scored
    plant(folder / name, content)
    before = sorted(path.name for path in folder.iterdir())
    given = {"merge": [joined(runs)], "report": [f"run={scored}"], "compare": [joined([finished, scored])]}
    code, said_so = said(capsys, command, *given.get(command, [*FAST, "seed=5", f"resume={scored}"]))
    lines = said_so.splitlines()
    assert (code, "unexpected fault" in said_so, len(lines)) == (2, False, 1), said_so
    assert str(folder) in lines[0]
    assert sorted(path.name for path in folder.iterdir()) == before
    assert command != "merge" or not list(Path("runs").glob("merge/*"))


@pytest.mark.parametrize(("name", "old", "new"), [
    ("run.json", f'"segmeter": "{__version__}"', '"segmeter": "0.1.1"'),
    ("run.json", '"sha256": "', '"sha257": "'),
    ("run.json", '"state": "done"', '"state": "dona"'),
    ("config.yaml", "workers: ", "worker5: "),
    ("config.yaml", "seed: 5", "seed: 7"),
    ("manifest.json", '"case00"', '"case0"'),
    ("manifest.json", f'"segmeter": "{__version__}"', '"segmeter": "0.1.1"'),
])  # fmt: skip
def test_merge_refuses_a_record_that_was_changed(name: str, old: str, new: str, runs: list[Path], capsys) -> None:
    """Mutations seen to fail: no seal; no hashes of the files beside run.json."""
    changed = next(folder for folder in runs if old in (folder / name).read_text())
    (changed / name).write_text((changed / name).read_text().replace(old, new))
    code, lines = said(capsys, "merge", joined(runs))
    assert (code, len(lines.splitlines())) == (2, 1), lines
    assert str(changed) in lines
    assert name in lines


def test_merge_takes_no_file_from_outside_a_run(runs: list[Path], tmp_path: Path, capsys) -> None:
    """Mutation seen to fail: names of a record taken as they are."""
    case_id = json.loads((runs[0] / "manifest.json").read_text())["cases"][0]
    (tmp_path / "outside").write_text("mine")
    files = {"../../../outside": {"bytes": 4, "sha256": "0"}}
    change_record(
        runs[0], case_id, lambda row: row.update(record=json.dumps(json.loads(row["record"]) | {"files": files}))
    )
    code, lines = said(capsys, "merge", joined(runs))
    assert (code, "to name files below predictions/, got '../../../outside'" in lines) == (2, True), lines
