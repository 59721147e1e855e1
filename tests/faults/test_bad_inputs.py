"""The list of bad inputs: each number through the command line, with its message, exit code 2, and nothing written.

A message says what was given, what is allowed and, where that does not follow, what to do. Inputs that can be read
exactly, as some on the list can, end with 0, and what is said of them is checked instead. "..." stands for any text.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmeter.cli.main import main
from tests.faults import world
from tests.faults.bad import SCORE, Bad
from tests.faults.bad_data import DATA_SETS, IMAGES, MASKS
from tests.faults.bad_runs import CHECKPOINTS, CONFIGURATION
from tests.faults.world import MARK

TABLE = [*CONFIGURATION, *CHECKPOINTS, *IMAGES, *MASKS, *DATA_SETS]


def test_every_number_is_here() -> None:
    assert sorted({bad.number for bad in TABLE}) == list(range(1, 111))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        world.make_world()
    return folder


@pytest.fixture
def _here(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shutil.copytree(sound, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    yield
    world.patch.undo()


# Warnings, and progress on a slow machine
BESIDE = re.compile(r"warning: |compiling loops |[\w ]+: (\d+ %|finished in )")


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    "bad", [pytest.param(bad, marks=[pytest.mark.slow] if n % 3 else []) for n, bad in enumerate(TABLE)], ids=str
)
def test_a_bad_input_is_answered_as_promised(bad: Bad, capsys: pytest.CaptureFixture[str]) -> None:
    bad.spoil()
    before, code = contents(), 0
    try:
        main(bad.line.split())
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    out, errors = capsys.readouterr()
    assert code == bad.code, errors
    assert not Path(MARK).exists()
    wanted = re.escape(bad.says.replace("{here}", str(Path.cwd()))).replace(r"\.\.\.", ".*")
    if not code:
        assert re.search(wanted, out + errors), out + errors
        return
    lines = [line for line in errors.splitlines() if not BESIDE.match(line)]
    assert all(line.startswith("segmeter: ") and line.isprintable() for line in lines), errors
    assert len(lines) == bad.lines
    assert any(re.search(f"{wanted}$", line) for line in lines), errors
    assert contents() == before


def contents() -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns * path.is_file()) for path in Path().rglob("*"))


@pytest.mark.usefixtures("_here")
def test_109_a_formula_in_a_name_is_text_in_the_table() -> None:
    for folder in ("labels", "data/masks"):
        Path(f"{folder}/b.png").rename(f"{folder}/=HYPERLINK(1).png")
    main(SCORE.split())
    (table,) = Path().glob("runs/score/*/cases.csv")
    assert not re.search(r"(^|,)\"?[=+@-][A-Z]", table.read_text(), re.MULTILINE)
    assert "HYPERLINK" in table.read_text()
