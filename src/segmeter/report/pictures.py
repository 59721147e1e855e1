"""Overlays on disk -> pictures inside the page, within a limit of bytes."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from segmeter.report.config import ReportConfig
from segmeter.report.gallery import worst_first
from segmeter.report.overlay import picture_path

WIDTH = 1600  # of an embedded picture, pixels
QUALITY = 82


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One embedded picture: `source` is a data URI."""

    case_id: str
    score: float | None
    source: str
    width: int
    height: int


def load_pictures(
    folder: Path, scores: Mapping[str, float | None], config: ReportConfig
) -> tuple[list[Picture], list[Picture]]:
    """Embed the worst cases that have a picture, and others spread evenly over the rest.

    Parameters
    ----------
    folder
        The run's overlays folder; it may be missing.
    scores
        Mean IoU per case id, None where undefined.
    config
        How many, and how many bytes in all.
    """
    paths = {case_id: path for case_id in worst_first(scores) if (path := picture_path(folder, case_id)).is_file()}
    order = list(paths)
    worst, rest = order[: config.worst], order[config.worst :]
    count = min(config.others, len(rest))
    others = [rest[(2 * i + 1) * len(rest) // (2 * count)] for i in range(count)]
    left = int(config.max_mb * 2**20)
    groups: tuple[list[Picture], list[Picture]] = ([], [])
    for group, names in zip(groups, (worst, others), strict=True):
        for case_id in names:
            picture = _embed(case_id, scores[case_id], paths[case_id])
            left -= len(picture.source)
            if left < 0:
                return groups
            group.append(picture)
    return groups


def _embed(case_id: str, score: float | None, path: Path) -> Picture:
    with Image.open(path, formats=["PNG"]) as stored:
        image = stored.convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=QUALITY)
    source = "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
    return Picture(case_id=case_id, score=score, source=source, width=image.width, height=image.height)
