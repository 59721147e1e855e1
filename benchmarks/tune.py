"""How well a tuned setting's gain is corrected for choosing, how often the best setting is found, and how fast it is.

Scores of settings are drawn for each case. In the null populations all settings are equal. In the others, one leads by
three standard errors of its paired difference to each other setting.

    python benchmarks/tune.py [replications]      writes benchmarks/results/tune.json
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from record import circumstances, write_record
from segmeter.classes import ClassSpec
from segmeter.evaluation.decisions.settings import count_settings, parse_over
from segmeter.metrics.statistics.bootstrap import bootstrap
from segmeter.metrics.statistics.columns import Columns, mean_columns, mean_of_columns
from segmeter.metrics.summary.tune import choose, fold_sums

RESULT = Path(__file__).parent / "results" / "tune.json"
RESAMPLES = 1000
POPULATIONS = [
    (n, s, rho, skewed) for n in (20, 60) for s, rho in ((10, 0.0), (40, 0.9), (200, 0.5)) for skewed in (False, True)
]
IMAGES, EDGE = 100, 512
SPEC = ClassSpec(task="binary", names=("ground", "cell"), colours=((0, 0, 0), (255, 255, 255)))


def draw(rng: np.random.Generator, n: int, settings: int, rho: float, *, skewed: bool, lead: float) -> np.ndarray:
    """Scores (n, S) of cases: a common part, and parts of settings that resemble those of their neighbours."""
    parts = rng.normal(size=(n, settings))
    for s in range(1, settings):
        parts[:, s] = rho * parts[:, s - 1] + np.sqrt(1 - rho**2) * parts[:, s]
    spread = np.sqrt(3) if skewed else 1.0
    parts = np.sign(parts) * parts**2 if skewed else parts
    parts[:, settings // 3] += lead * np.sqrt(2) * spread / np.sqrt(n)
    return 0.8 + 0.02 * (3 * rng.normal(size=(n, 1)) + parts)


def simulate(n: int, settings: int, rho: float, *, skewed: bool, lead: float, replications: int) -> dict[str, Any]:
    """How often the interval of the gain holds the true one, and the best setting is found."""
    rng, covered, found, gains, corrected = np.random.default_rng(n + settings), 0, 0, [], []
    best = settings // 3
    true = np.zeros(settings)
    true[best] = 0.02 * lead * np.sqrt(2) * (np.sqrt(3) if skewed else 1.0) / np.sqrt(n)
    for seed in range(replications):
        scores = draw(rng, n, settings, rho, skewed=skewed, lead=lead)
        drawn = bootstrap(mean_columns(scores), mean_of_columns, resamples=RESAMPLES, seed=seed)
        options: dict[str, Any] = {"simplicity": range(settings), "higher_is_better": True, "n_units": n}
        held = fold_sums(Columns.of(mean_columns(scores)), seed)
        parts = np.moveaxis(held.reshape(*held.shape[:2], 3, settings), -1, 0)
        choice = choose(drawn.estimate, drawn.replicates, parts, mean_of_columns, usual=0, **options)
        covered += choice.gain_ci95[0] <= true[choice.chosen] <= choice.gain_ci95[1]
        found += choice.chosen == best
        gains.append(choice.gain - true[choice.chosen])
        corrected.append(choice.corrected_gain - true[choice.chosen])
    return {
        "cases": n,
        "settings": settings,
        "correlation": rho,
        "skewed": skewed,
        "lead": lead,
        "covered": covered / replications,
        "found": found / replications,
        "excess": float(np.mean(gains)),
        "excess_corrected": float(np.mean(corrected)),
    }


def measure_speed() -> dict[str, float]:
    """CPU seconds for 200 settings on 100 images of 512 x 512 after the forward passes."""
    rng, settings = (
        np.random.default_rng(0),
        parse_over(["threshold=0.3:0.69:0.01", "postprocess.min_size=0|16|64|128|256"], SPEC),
    )
    assert len(settings.every) == 200
    seconds = 0.0
    for _ in range(IMAGES):
        field = ndimage.gaussian_filter(rng.normal(size=(EDGE, EDGE)), 6)
        target = (field > 0.03).astype(np.uint8)
        noise = ndimage.gaussian_filter(rng.normal(size=(EDGE, EDGE)), 1.5)
        probs = (1 / (1 + np.exp(-60 * (field - 0.03) - 8 * noise)))[None].astype(np.float32)
        began = time.process_time()
        count_settings(target, settings, SPEC, probs=probs)
        seconds += time.process_time() - began
    return {"settings": len(settings.every), "images": IMAGES, "edge": EDGE, "cpu_seconds": seconds}


def main(replications: int = 200) -> None:
    """Simulate every population, measure the speed, and write the record."""
    speed = measure_speed()
    print(speed, flush=True)
    records = []
    for n, settings, rho, skewed in POPULATIONS:
        for lead in (0.0, 3.0):
            options: dict[str, Any] = {"skewed": skewed, "lead": lead, "replications": replications}
            records.append(simulate(n, settings, rho, **options))
            print(records[-1], flush=True)
    write_record(
        RESULT, circumstances("scipy") | {"replications": replications, "speed": speed, "populations": records}
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
