"""Command lines of the pages use commands and keys that exist, each metric has a page, and its pitfalls are real."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.metric_pages import Page, link_pages, read_pages, write_page
from docs.pitfalls import PITFALLS, Pitfall, measure

from segmeter.cli.main import main
from segmeter.metrics.config.metrics import MEASURES, MetricsConfig
from segmeter.metrics.config.scores import find_facts
from segmeter.metrics.pixels.overlap import AGGREGATES, RATIOS
from segmeter.metrics.summary.scoreboard import probe_scores
from tests.metrics.build import class_spec

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
    left, right = (measure(*side[1:], dict.fromkeys(pitfall.metrics)) for side in (pitfall.left, pitfall.right))
    assert not [name for name in pitfall.metrics if not pitfall.misleads(name, left[name], right[name])]


def test_each_registered_score_has_one_page() -> None:
    options = {"surface": {"surface": "both"}, "instances": {"distances": True}}
    ours = {name for name in MEASURES.names() if MEASURES.schema_of(name).__module__.startswith("segmeter.")}
    every = [{"name": name, **options.get(name, {})} for name in ours]
    board = probe_scores(MetricsConfig(measures=every), class_spec(2, "binary"))
    scores = {name.partition("/")[0].partition("@")[0] for name in (*board.names_per_case, *board.dataset_names)}
    pages = read_pages().values()
    paged = [name for page in pages for name in page.names]
    assert len(set(paged)) == len(paged)
    assert {*AGGREGATES, *RATIOS, *(name.removesuffix("_marching_cubes") for name in scores)} <= set(paged)
    assert {page.cells["measure"].strip("`") for page in pages if "measure" in page.cells} == ours


@pytest.mark.parametrize("page", read_pages().values(), ids=lambda page: page.names[0])
def test_a_page_agrees_with_the_facts_about_its_scores(page: Page) -> None:
    """Its best value is at the end that is better, values are infinite only where they can be, and it has a picture."""
    lowest, _, highest = page.cells["range"].partition(" to ")
    facts = [found for name in page.names if (found := find_facts(name))]
    if facts and page.cells["range"] != "counts":
        assert {one.better for one in facts} == {"lower" if "**" in lowest else "higher"}
        assert {one.highest for one in facts} == {float(highest.strip("*"))}
        assert "inf" not in page.cells.get("one empty", "") or all(one.infinite for one in facts)
    drawn = {name.partition("@")[0] for pitfall in PITFALLS for name in pitfall.metrics}
    assert not facts or drawn & {*page.names}
    text = write_page(page, "")
    assert text.startswith(f"# `{page.names[0]}`")
    assert "| unit |" in text


def test_every_name_in_the_list_leads_to_its_page() -> None:
    linked = link_pages((ROOT / "docs" / "metric-list.md").read_text(encoding="utf-8"))
    assert all(f"]({path}.md)" in linked and f"\n{path}\n" in linked for path in read_pages())
