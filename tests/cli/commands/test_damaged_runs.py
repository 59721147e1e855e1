"""Records of runs that are damaged, changed or planted: each command says so in one line, and none waits or crashes."""

import json
import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

from segmeter import __version__
from tests.cli.sharded import SCORE, change_record, done, listed, run_shards
from tests.data.crafted import put
from tests.deadline import deadline

pytestmark = pytest.mark.usefixtures("in_here")

FAST = (*SCORE, "images=null", "metrics.measures=[]", "report.overlays=0", "report.worst=0", "seed=5")
DEEP = '{"a": ' + "[" * 100_000


@pytest.fixture(scope="module")
def sound(here: Path) -> list[Path]:
    """Two shards of a run, and the whole run."""
    with chdir(here):
        return [path.absolute() for path in (*run_shards("score", 2, *FAST), done("score", *FAST, "run.name=all"))]


@pytest.fixture
def runs(sound: list[Path], tmp_path: Path) -> list[Path]:
    """Copies of the shards, which a test may damage."""
    return [Path(shutil.copytree(folder, tmp_path / "runs" / f"s{n}")) for n, folder in enumerate(sound[:2])]


BROKEN = {"deep": lambda at: put(at, DEEP), "fifo": lambda at: os.mkfifo(at), "list": lambda at: put(at, "[1]")}
REFUSING = {
    "merge": ("run.json", "manifest.json", "config.yaml"),
    "report": ("run.json", "metrics.json"),
    "compare": ("metrics.json",),
    "score": ("manifest.json", "config.yaml"),  # that resumes
}


@pytest.mark.parametrize("spoil", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(("command", "name"), [(command, name) for command in REFUSING for name in REFUSING[command]])
def test_a_damaged_record_is_refused_in_one_line_and_nothing_changes(
    command, name, spoil, runs, sound, tmp_path, refused
):
    scored = Path(shutil.copytree(sound[2], tmp_path / "alone"))
    folder = runs[1] if command == "merge" else scored
    (folder / name).unlink()
    spoil(folder / name)
    before = sorted(path.name for path in folder.iterdir())
    given = {"merge": [listed(runs)], "report": [f"run={scored}"], "compare": [listed([sound[2], scored])]}
    with deadline(200):  # of a busy machine
        (line,) = refused(command, *given.get(command, [*FAST, f"resume={scored}"])).splitlines()
    assert "unexpected fault" not in line
    assert str(folder) in line
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
def test_merge_refuses_a_record_that_was_changed(name: str, old: str, new: str, runs: list[Path], refused) -> None:
    """Mutations seen to fail: no seal; no hashes of the files beside run.json."""
    changed = next(folder for folder in runs if old in (folder / name).read_text())
    (changed / name).write_text((changed / name).read_text().replace(old, new))
    (line,) = refused("merge", listed(runs)).splitlines()
    assert str(changed) in line
    assert name in line


def test_merge_takes_no_file_from_outside_a_run(runs: list[Path], tmp_path: Path, refused) -> None:
    """Mutation seen to fail: names of a record taken as they are."""
    case_id = json.loads((runs[0] / "manifest.json").read_text())["cases"][0]
    (tmp_path / "outside").write_text("mine")
    outside = {"files": {"../../../outside": {"bytes": 4, "sha256": "0"}}}
    change_record(runs[0], case_id, lambda row: row.update(record=json.dumps(json.loads(row["record"]) | outside)))
    assert "to name files below predictions/, got '../../../outside'" in refused("merge", listed(runs))
