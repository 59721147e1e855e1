"""What the commands do before any work: help, completion, start-up, exit codes; and the wheel."""

import re
import runpy
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from segmeter.cli import app, commands, launch
from segmeter.cli.commands import COMMANDS, PLAIN, USAGE, load_command
from segmeter.cli.config import compose
from segmeter.cli.config.groups import ROOTS
from segmeter.cli.config.model_command_configs import TrainConfig
from segmeter.cli.main import main

ROOT = Path(__file__).parents[2]
SHOWN = [["--help"], ["--version"], ["train", "--cfg", "job"], *([name, "--help"] for name in COMMANDS)]
SHOW_ALL = f"""
import contextlib, io, sys
from segmeter.cli.main import main
for arguments in {SHOWN!r}:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        main(arguments)
    assert said.getvalue().strip(), arguments
    assert 'torch' not in sys.modules, arguments
"""


def test_what_only_shows_imports_no_torch() -> None:
    command = [sys.executable, "-W", "error", "-c", SHOW_ALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_start_composes_once_and_checks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    composed, checked = compose.compose, TrainConfig.model_validate
    monkeypatch.setattr(compose, "compose", lambda *a, **k: calls.append("compose") or composed(*a, **k))
    monkeypatch.setattr(TrainConfig, "model_validate", lambda *a, **k: calls.append("check") or checked(*a, **k))
    for module in (app, launch):
        monkeypatch.setattr(module, "run_job", lambda config, job: calls.append("run"))
    main(["train", "loss.gamma=1", "experiment=demo"])
    assert calls == ["compose", "check", "run"]
    calls.clear()
    main(["train", "--multirun", "loss.gamma=1,2,3"])
    assert calls == [*["compose"] * 3, *["check"] * 3, *["run"] * 3]


def test_nothing_private_of_hydra_is_imported() -> None:
    assert not [path for path in (ROOT / "src").rglob("*.py") if "hydra._internal" in path.read_text()]


def test_each_listed_command_has_a_module_and_a_usage_line() -> None:
    texts = [path.read_text() for path in Path(commands.__file__).parent.glob("[!_]*.py")]
    run = {name for text in texts for name in re.findall(r"^def run_(\w+)\(", text, re.MULTILINE)}
    assert set(COMMANDS) == run | {"demo", "schema"} == set(USAGE)
    assert set(ROOTS) == set(COMMANDS) - set(PLAIN)
    assert len({ROOTS[name] for name in ROOTS}) == len(ROOTS), "each has a schema of its own"
    for name in COMMANDS:
        assert name not in run or callable(load_command(name))
        assert USAGE[name].split()[:2] == ["segmeter", name]


def test_scripts_are_thin_doors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    scripts = sorted((ROOT / "scripts").glob("*.py"))
    assert scripts
    for script in scripts:
        assert script.read_text().count("\n") <= 15
        monkeypatch.setattr(sys, "argv", [str(script), "--help"])
        with suppress(SystemExit):
            runpy.run_path(str(script), run_name="__main__")
        assert f"segmeter {script.stem}" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [
    (["tarin"], "unknown command 'tarin'. Did you mean 'train'?"),
    (["train", "nosuch=1"], "unknown key 'nosuch'"),
    (["train", "--experimental-rerun", "x.pickle"], "unrecognized arguments: --experimental-rerun"),
    (["doctor", "x"], "expected no arguments"),
    (["check", "data=camvid", "data.root=nowhere"], "nowhere"),
    (["train", "--cfg", "jbo"], "invalid choice: 'jbo'"),
    (["train", "--nosuch"], "unrecognized arguments: --nosuch. See: segmeter train --help"),
    (["schema"], "expected one name, got 0"),
    (["schema", "train", "loss"], "schema: expected one name, got 2. Known: "),
    (["plan", "run=.", "width=0.1"], "plan: expected `runs` to hold metrics.json, got "),
    (["schema", "trian"], "Did you mean 'train'?"),
    (["train", "debug=overfitt"], "to be one of fast, overfit, profile, got 'overfitt'. Did you mean 'overfit'?"),
    (["score", "predictions=a", "references=b", "data.num_classes=3", "data.instances=true"],
     "`data.instances` to be false but for a binary task without label map"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_bad_command_lines_end_with_one_line_and_2(arguments, message, refused):
    (line,) = refused(*arguments).strip().splitlines()
    assert message in line


def test_the_package_is_a_command_too_and_a_closed_output_is_no_fault() -> None:
    command = f"{sys.executable} -m segmeter trian; {sys.executable} -m segmeter.cli.main train --cfg job | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stderr == "segmeter: unknown command 'trian'. Did you mean 'train'?\n"


@pytest.mark.slow
def test_the_wheel_carries_the_configurations(tmp_path: Path) -> None:
    """The installed command works from any folder: built as a wheel, unpacked elsewhere, run from a third place."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    shipped = {str(path.relative_to(ROOT / "configs")) for path in (ROOT / "configs").rglob("*.yaml")}
    packed = tmp_path / "site/segmeter/configs"
    assert {str(path.relative_to(packed)) for path in packed.rglob("*.yaml")} == shipped
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import segmeter; "
        f"assert segmeter.__file__.startswith({str(tmp_path)!r}); "
        "from segmeter.cli.main import main; main(['train', 'data=camvid', 'data.root=x', '--cfg', 'job'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "name: camvid" in done.stdout
