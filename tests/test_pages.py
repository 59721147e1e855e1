"""The pages' command lines use commands and keys that exist, and the pitfalls of the metrics are real."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.pitfalls import PITFALLS, Pitfall, measure

from segmeter.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACEHOLDERS = {"...": "", "$i/3": "1/3", "fold$i": "fold1", "<date>_<time>": "now", "$(echo runs/score/*_new)": "new"}
PLACEHOLDERS |= {"$(echo runs/score/*_old)": "old"}
WITHOUT_CONFIGURATION = {"demo", "doctor", "schema", "report", "--help"}


def command_lines() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if page.name == "configuration.md":
            continue
        text = page.read_text(encoding="utf-8").replace("\\\\\n", " ").replace("\\\n", " ")
        for found in re.finditer(r"^ {4,}(segmeter \w.*)$", text, re.MULTILINE):
            yield page.name, re.sub(r"\s+(#|\|\|).*", "", found[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "line"), [pytest.param(*each, id=f"{each[0]}: {each[1][:60]}") for each in command_lines()]
)
def test_the_configuration_of_a_pages_command_is_composed(page, line, tmp_path, monkeypatch, capsys):
    for placeholder, value in PLACEHOLDERS.items():
        line = line.replace(placeholder, value)
    command, *overrides = shlex.split(line)[1:]
    if command in WITHOUT_CONFIGURATION:
        pytest.skip("takes no configuration")
    monkeypatch.chdir(tmp_path)
    Path("my_models.py").touch()  # a plugin that a page has the reader write
    tuned = Path("runs/tune/NAME/tuned.yaml")  # as `segmeter tune` writes it
    tuned.parent.mkdir(parents=True)
    tuned.write_text("postprocess: {steps: []}\n")
    if "--multirun" in overrides:  # the first job; what only a sweeper reads is tested elsewhere
        sweeps = (each for each in overrides if not each.startswith(("--multirun", "hydra")) and "(" not in each)
        overrides = [each.partition(",")[0] for each in sweeps]
    code = main([command, *overrides, "--cfg", "job"])
    assert not code, capsys.readouterr().err


@pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda pitfall: f"{pitfall.metric}: {pitfall.left[0]}")
def test_a_pitfall_misleads_as_its_lesson_says(pitfall: Pitfall) -> None:
    left, right = (measure(*side[1:], {pitfall.metric: None})[pitfall.metric] for side in (pitfall.left, pitfall.right))
    assert pitfall.compare(left, right)
