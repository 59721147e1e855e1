"""Every registered measure keeps the laws: few cases here, many in `make fuzz`; a measure that breaks one is found."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from segmeter.metrics.arrays import divide
from segmeter.metrics.cases.stored import read_cases, write_cases
from segmeter.metrics.cases.table import MeasureColumn
from segmeter.metrics.config import scores
from segmeter.metrics.config.measures import MEASURES, MeasureConfig
from segmeter.metrics.config.metrics import MetricsConfig
from segmeter.metrics.measures.protocol import build_measures
from segmeter.metrics.measures.row import make_row
from segmeter.metrics.summary.summarise import summarise
from tests.fuzzing import record, rounds
from tests.metrics.laws.drawn import class_spec, draw
from tests.metrics.laws.figures import configs, groups_of
from tests.metrics.laws.laws import EXCEPTIONS, LAWS

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
SHOWN = 3  # cases of one failure


def holds(law, seeds):
    found = [line for seed in seeds for line in law(np.random.default_rng(seed))]
    heads = Counter(line.splitlines()[0].partition(" was ")[0] for line in found)
    shortest = sorted(found, key=len)[:SHOWN]
    assert not found, f"{len(found)} figures: {dict(heads.most_common(20))}\n" + "\n".join(shortest)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_measures_keep_the_laws(law):
    holds(law, range(6))


@pytest.mark.fuzz
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_measures_keep_the_laws_on_many_maps(law):
    count = rounds(12, 500)
    holds(law, range(1000, 1000 + count))
    record(f"laws of measures: {law.__name__}", maps=count, measures=MEASURES.names())


def shards_agree(seed, folder):
    """Rows of shards, written apart, read back and put together in any order, summarise as those of one run."""
    rng = np.random.default_rng(seed)
    spec = class_spec("multiclass", 3)
    cases = []
    while len(cases) < 4:
        maps = draw(rng, ignore=True, case_id=f"case {len(cases)}")
        cases += [maps] if maps.spec == spec and len(maps.shape) == 2 else []
    config = MetricsConfig(measures=tuple(configs(rng).values()), groups=groups_of(spec), bootstrap=0)
    measures = build_measures(config, spec)
    rows = [make_row(maps, measures) for maps in cases]
    whole, merged = summarise(rows, spec, config), []
    order = rng.permutation(len(rows)).tolist()
    for number, part in enumerate(np.split(order, [int(rng.integers(1, 4))])):
        (folder / str(number)).mkdir()
        write_cases(folder / str(number), [rows[k] for k in part], spec)
        merged = [*read_cases(folder / str(number)), *merged]
    assert summarise(merged, spec, config) == whole
    kept = [rows[k] for k in order[:2]]
    alone = [make_row(cases[k], measures) for k in order[:2]]
    assert summarise(alone[::-1], spec, config) == summarise(kept, spec, config)


def test_shards_and_subsets_agree_with_the_whole(tmp_path):
    shards_agree(0, tmp_path)


@pytest.mark.fuzz
def test_shards_and_subsets_of_many_runs_agree_with_the_whole(tmp_path):
    count = rounds(4, 300)
    for seed in range(count):
        (tmp_path / str(seed)).mkdir()
        shards_agree(seed, tmp_path / str(seed))
    record("laws of measures: shards and subsets", runs=count)


@dataclass(frozen=True)
class _Broken:
    """The IoU of each class, but for one fault."""

    fault: str
    regions: tuple

    def __call__(self, maps):
        for region in self.regions:
            target, labels = maps.planes(region)
            ours, theirs = target == 1, (labels == 1) & ((target != 2) | (self.fault == "void"))
            weight = np.ones(target.shape)
            weight[: self.fault == "place"] = 2  # the first row
            union = ours if self.fault == "one way" else ours | theirs
            value = divide((weight * (ours & theirs)).sum(), np.array((weight * union).sum()))
            if self.fault == "reward":  # more is better, right or wrong
                value = theirs.sum()
            elif self.fault == "numbers":
                value = 0 if maps.instances is None else maps.instances.max()
            elif self.fault == "kept":  # what other measures have left
                value = len(maps.kept)
            yield MeasureColumn("broken", region.name, float(value))

    def summarise(self, sums):
        return {}


@pytest.mark.parametrize(
    ("fault", "laws"),
    [
        ("void", ["void"]),
        ("reward", ["perfect", "wrong"]),
        ("place", ["mirrored"]),
        ("numbers", ["renumbered_objects"]),
        ("one way", ["swapped"]),
        ("kept", ["together"]),
    ],
)
def test_a_measure_that_is_registered_is_held_against_them(fault, laws, monkeypatch):
    kept = {name: MEASURES._entries[name] for name in ("aji", "surface")}
    monkeypatch.setattr(MEASURES, "_entries", kept)
    monkeypatch.setitem(scores._KNOWN, "broken", scores.Facts(better="higher"))

    @MEASURES.register("broken", builder=lambda config, *, spec, regions: _Broken(fault, regions))
    class BrokenConfig(MeasureConfig):
        name: str = "broken"

    for law in (law for law in LAWS if law.__name__ in laws):
        found = [line for seed in range(4) for line in law(np.random.default_rng(seed))]
        assert found
        assert all("'broken'" in line and "target=np.array(" in line for line in found)


def test_the_page_has_every_exception():
    text = PAGE.read_text()
    for law, exceptions in EXCEPTIONS.items():
        for name in exceptions:
            assert f"`{name.removeprefix('convention ')}`" in text.partition("## Laws")[2], (law, name)
