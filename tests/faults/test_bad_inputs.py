"""Each bad input through the command line: its message, exit code 2, and nothing written; and runs in unplanned states.

A message says what was given, what is allowed and, where that does not follow, what to do. Inputs that can be read
exactly, as some on the list can, end with 0, and what is said of them is checked instead. "..." stands for any text.
"""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmeter import files
from segmeter.cli.commands import score
from segmeter.cli.main import main
from segmeter.errors import SIGNAL_EXIT_CODES
from tests.faults import world
from tests.faults.bad import PREDICT, SCORE, TABLE, TRAIN, Bad
from tests.faults.world import MARK


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


def contents() -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns * path.is_file()) for path in Path().rglob("*"))


def run(line: str) -> int:
    """The exit code of a command line."""
    try:
        main(line.split())
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    "bad", [pytest.param(bad, marks=[pytest.mark.slow] if n % 3 else []) for n, bad in enumerate(TABLE)], ids=str
)
def test_a_bad_input_is_answered_as_promised(bad: Bad, capsys: pytest.CaptureFixture[str]) -> None:
    bad.spoil()
    before, code = contents(), run(bad.line)
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


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("name", [b"=HYPERLINK(1)", b"\xff"], ids=["109-formula", "no text"])
def test_a_name_that_is_a_formula_or_no_text_is_text_in_the_table(name: bytes) -> None:
    for folder in (b"labels/", b"data/masks/"):
        os.rename(folder + b"b.png", folder + name + b".png")  # noqa: PTH104 - a name in bytes
    assert run(SCORE) == 0
    (table,) = Path().glob("runs/score/*/cases.csv")
    assert len(table.read_text().splitlines()) == 7
    assert not re.search(r"(^|,)\"?[=+@-][A-Z]", table.read_text(), re.MULTILINE)


RUN = Path("runs/x/y")
AGAIN = f"{SCORE} resume={RUN}"


@pytest.fixture
def finished(_here: None) -> Path:
    """A finished run of score."""
    main(SCORE.split())
    (folder,) = Path("runs/score").iterdir()
    RUN.parent.mkdir()
    return folder.rename(RUN)


def ended(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code, and the one line that was said."""
    capsys.readouterr()
    code = run(line)
    said = [text for text in capsys.readouterr().err.splitlines() if text.startswith("segmeter: ")]
    assert len(said) <= 1, said
    return code, said[0] if said else ""


def test_metrics_that_are_gone_are_made_again(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (finished / "metrics.json").read_bytes()
    (finished / "metrics.json").unlink()
    assert "to hold metrics.json" in ended(f"report run={finished}", capsys)[1]
    assert ended(AGAIN, capsys) == (0, "")
    assert (finished / "metrics.json").read_bytes() == before


def test_a_run_that_can_not_be_written(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def deny(operation: str, path: Path) -> None:
        raise OSError(30, "Read-only file system")

    world.patch.setattr(files, "watch", deny)
    code, said = ended(AGAIN, capsys)
    assert (code, "`resume` to be a folder that can be written, got runs/x/y/.lock (Read-only" in said) == (2, True)
    code, said = ended(f"report run={finished}", capsys)
    assert (code, "runs/x/y/report.html: Read-only file system. Remove the cause" in said) == (3, True)


@pytest.mark.usefixtures("_here")
def test_a_history_of_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"{TRAIN} training.epochs=null training.steps=1"
    assert ended(line, capsys) == (0, "")
    (folder,) = Path("runs/train").iterdir()
    (folder / "history.jsonl").write_text("[1]\n")
    for again in (f"report run={folder}", f"{line} resume={folder}"):
        code, said = ended(again, capsys)
        assert code == 2, said
        assert "history.jsonl, line 1: is damaged, or was not written by segmeter (" in said


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("model.safetensors", 3, "model.safetensors: Input/output error. "),
        ("manifest.json", 3, "manifest.json: Input/output error. "),
        ("images/b.png", 2, "images/b.png: expected `file` to be readable, got Input/output error."),
    ],
)
def test_a_file_on_a_broken_disk(name: str, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    world.failing(name, 5)
    assert (found := ended(PREDICT, capsys))[0] == code, found
    assert message in found[1]


LATE = {
    "done": ("print_summary", "", ("SIGTERM", "SIGINT")),
    "not yet done": ("write_worst_list", "", ("SIGUSR1", "SIGINT")),
    "more to do": ("print_summary", " -m metrics.seed=1,2", ("SIGTERM", "SIGUSR1")),
}


@pytest.mark.parametrize(("when", "name"), [(when, name) for when, (*_, names) in LATE.items() for name in names])
@pytest.mark.usefixtures("_here")
def test_the_code_and_the_state_agree_on_a_signal_at_the_end(when, name, capsys, monkeypatch):
    """One that comes when the run is done is too late to stop it; in a sweep it stops the next job."""
    late, more, _ = LATE[when]
    real, number = getattr(score, late), getattr(signal, name)

    def signalled(*given: object, **options: object) -> object:
        signal.raise_signal(number)
        return real(*given, **options)

    monkeypatch.setattr(score, late, signalled)
    code, said = ended(f"{SCORE}{more}", capsys)
    states = [json.loads(path.read_bytes())["state"] for path in Path("runs").rglob("run.json")]
    if when == "done":
        assert (code, said, states) == (0, "", ["done"])
        return
    word = "interrupted" if number == signal.SIGINT else f"stopped by {number.name}"
    assert (code, said) == (SIGNAL_EXIT_CODES[number], f"segmeter: {word}.")
    assert states == ["done" if more else word]


ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (\d+) \| .+ \| (`.+`) \|$", re.MULTILINE)


def test_every_fault_has_tests_that_exist() -> None:
    rows = ROW.findall((ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"))
    assert [int(number) for number, _ in rows] == list(range(1, 53))
    for number, modules in rows:
        for module in re.findall("`(.+?)`", modules):
            assert "def test_" in (ROOT / "tests" / module).read_text(encoding="utf-8"), (number, module)
