"""Draw docs/images/postprocess.png: what each post-processing step does to one label map, before and after."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from segmeter.classes import ClassSpec
from segmeter.postprocess.config import STEPS
from segmeter.postprocess.pipeline import Cleaned, run_steps

mpl.use("agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

SPEC = ClassSpec(task="binary", names=("background", "cell"), colours=((0, 0, 0), (0, 158, 115)))
STEPS_SHOWN = (
    {"name": "remove_small_objects", "min_pixels": 40},
    {"name": "largest_component"},
    {"name": "clear_border"},
    {"name": "fill_holes", "max_pixels": None},
    {"name": "opening", "radius": 3},
    {"name": "closing", "radius": 3},
    {"name": "smooth", "radius": 3},
    {"name": "skeleton"},
    {"name": "watershed", "min_distance": 6},
    {"name": "distance_split", "depth": 9},
    {"name": "cores", "above": 0.95},
)
KEPT, LOST, GAINED = (0.75, 0.75, 0.75), (0.84, 0.37, 0.0), (0.0, 0.45, 0.7)


def before() -> NDArray[np.uint8]:
    """Cells with holes, rough edges, specks, necks, and one cut by the image's edge."""
    rows, columns = np.indices((110, 110))
    discs = [(30, 28, 17), (33, 56, 14), (80, 34, 20), (76, 72, 12), (90, 84, 10), (14, 106, 15), (60, 104, 5)]
    mask = np.any([(rows - y) ** 2 + (columns - x) ** 2 <= r * r for y, x, r in discs], axis=0)
    rng = np.random.default_rng(3)
    rough = ndimage.gaussian_filter(rng.standard_normal(mask.shape), 1.2)
    mask ^= (rough > 0.22) & ndimage.binary_dilation(mask, iterations=2) & ~ndimage.binary_erosion(mask, iterations=2)
    mask[78:82, 30:38] = mask[26:29, 22:26] = False  # holes
    mask[52, 60:75] = mask[100:102, 20:23] = mask[48:51, 84:87] = True  # a line and specks
    return mask.astype(np.uint8)


def draw(path: Path) -> None:
    """Write the picture."""
    labels = before()
    probs = (1 - np.exp(-ndimage.distance_transform_edt(labels) / 3))[None]  # of a model that is surest inside
    figure, places = plt.subplots(2, 6, figsize=(13.2, 5.3), layout="constrained")
    for place in places.flat:
        place.axis("off")
    _show(places[0, 0], "before", _coloured(labels, labels))
    for place, values in zip(list(places.flat)[1:], STEPS_SHOWN, strict=False):
        step = STEPS.schema(str(values["name"])).model_validate(values)
        cleaned = run_steps(labels, [step], SPEC, probs=probs)
        settings = ", ".join(f"{key}={_word(value)}" for key, value in values.items() if key != "name")
        pixels = sum(cleaned.changed.values())
        said = f"{pixels} pixels changed" if cleaned.instances is None else f"{cleaned.instances.max()} objects"
        _show(place, f"{step.name}\n{settings + chr(10) if settings else ''}{said}", _picture(labels, cleaned))
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})  # no title is cut


def _show(place: Axes, title: str, picture: NDArray[np.float64]) -> None:
    place.imshow(picture, interpolation="nearest")
    place.set_title(title, fontsize=9)


def _picture(labels: NDArray[np.uint8], cleaned: Cleaned) -> NDArray[np.float64]:
    if cleaned.instances is None:
        return _coloured(labels, cleaned.labels)
    hues = mpl.colormaps["tab10"](np.arange(cleaned.instances.max()) % 10)[:, :3]
    return np.vstack([np.ones((1, 3)), hues])[cleaned.instances]


def _coloured(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> NDArray[np.float64]:
    picture = np.ones((*old.shape, 3))
    picture[(old > 0) & (new > 0)] = KEPT
    picture[(old > 0) & (new == 0)] = LOST
    picture[(old == 0) & (new > 0)] = GAINED
    return picture


def _word(value: object) -> str:
    return "null" if value is None else str(value)


if __name__ == "__main__":
    draw(Path(__file__).parent / "images" / "postprocess.png")
