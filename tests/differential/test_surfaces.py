"""Surface distances equal those of MONAI, medpy, surface-distance, panoptica, scikit-image, seg_metrics, run live."""

from functools import cache

import numpy as np
import pytest
from scipy.ndimage import binary_erosion, distance_transform_edt, generate_binary_structure

from segmeter.metrics.distances import SurfaceKind
from segmeter.metrics.surfaces import SurfaceMetrics, surface_metrics, surface_metrics_by_class
from tests.differential import peers
from tests.differential.cases import BOTH_HOLD_ONE, IGNORED, MANY_CLASSES, Case, assert_agree, sweep
from tests.differential.peers import exact_quantile, load, quiet

TOLERANCES = (0.77, 1.37, 2.71)  # that no distance on a grid hits
PAIRS = (*BOTH_HOLD_ONE, *sweep(seed=1))


@cache
def measure(case: Case, surface: SurfaceKind = "border_pixels") -> SurfaceMetrics:
    return surface_metrics(*case.masks(), spacing=case.spacing, tolerances=TOLERANCES, surface=surface)


def ours(name: str, surface: SurfaceKind = "border_pixels") -> list[float]:
    return [getattr(measure(case, surface), name) for case in PAIRS]


def of_monai(name, **options):
    """MONAI's figure of every pair."""
    compute = getattr(load("monai.metrics"), f"compute_{name}")
    found = []
    for case in PAIRS:
        given = [load("torch").from_numpy(mask[None, None]) for mask in reversed(case.masks())]
        with quiet(), exact_quantile():
            found.append(float(compute(*given, include_background=True, spacing=case.spacing, **options)))
    return found


def of_medpy(name):
    compute = getattr(load("medpy.metric.binary"), name)
    return [compute(*case.masks()[::-1], voxelspacing=case.spacing) for case in PAIRS]


@cache
def pairs_of_panoptica():
    """Both directions' distances of every pair by it."""
    surface = load("panoptica.metrics._surface_distances")
    return [surface._surface_distance_pair(*case.masks(), case.spacing) for case in PAIRS]


def of_panoptica(name, *options):
    reduce = getattr(load("panoptica.metrics._surface_distances"), f"_{name}_from_pair")
    return [reduce(*pair, *options) for pair in pairs_of_panoptica()]


def of_scipy():
    directed, theirs = load("scipy.spatial.distance", "scipy").directed_hausdorff, []
    for case in PAIRS:
        edges = (np.argwhere(mask & ~binary_erosion(mask)) for mask in case.masks())
        first, second = (points * np.array(case.spacing) for points in edges)
        theirs.append(max(directed(first, second)[0], directed(second, first)[0]))
    return theirs


@pytest.mark.parametrize(("name", "tool", "given", "options"), [
    ("hd", of_monai, ["hausdorff_distance"], {}),
    ("hd95", of_monai, ["hausdorff_distance"], {"percentile": 95}),
    ("assd", of_monai, ["average_surface_distance"], {"symmetric": True}),
    ("mean_from_mask", of_monai, ["average_surface_distance"], {}),
    ("hd", of_medpy, ["hd"], {}),
    ("hd95_pooled", of_medpy, ["hd95"], {}),
    ("assd", of_medpy, ["assd"], {}),
    ("mean_from_mask", of_medpy, ["asd"], {}),
    ("hd", of_panoptica, ["hd"], {}),
    ("hd95_pooled", of_panoptica, ["hd95"], {}),
    ("masd", of_panoptica, ["assd"], {}),
    ("hd", of_scipy, [], {}),
])  # fmt: skip
def test_distances(name, tool, given, options):
    assert_agree(ours(name), tool(*given, **options))


@pytest.mark.parametrize(("number", "surface"), [
    *((number, "border_pixels") for number in range(len(TOLERANCES))),
    pytest.param(1, "marching_cubes", marks=pytest.mark.slow),
])  # fmt: skip
def test_surface_dice_of_monai(number, surface):
    """By subvoxels it is that of marching cubes."""
    found = [values[number] for values in ours("nsd", surface)]
    options = {"class_thresholds": [TOLERANCES[number]], "use_subvoxels": surface == "marching_cubes"}
    assert_agree(found, of_monai("surface_dice", **options))


def test_all_classes_at_once_of_monai():
    monai = load("monai.metrics")
    for case in (MANY_CLASSES, *sweep(num_classes=4, count=20, seed=2)):
        found = surface_metrics_by_class(case.target, case.labels, **case.counting, spacing=case.spacing)
        options = {"include_background": True, "spacing": case.spacing}
        with quiet():
            hd = monai.compute_hausdorff_distance(*peers.one_hot(case), **options)[0].numpy()
            assd = monai.compute_average_surface_distance(*peers.one_hot(case), symmetric=True, **options)[0].numpy()
        held = [one.status == "ok" for one in found]  # of the others, see what tools make of empty masks
        assert_agree(np.array([one.hd for one in found])[held], hd[held], case)
        assert_agree(np.array([one.assd for one in found])[held], assd[held], case)


def test_ignored_pixels_belong_to_no_mask():
    """A tool without ignore_index agrees on masks that lack those pixels."""
    binary = load("medpy.metric.binary")
    counted = IGNORED.target != IGNORED.ignore_index
    found = surface_metrics_by_class(IGNORED.target, IGNORED.labels, **IGNORED.counting, spacing=IGNORED.spacing)
    for k in range(4):
        target, mask = IGNORED.masks(k)
        assert_agree(found[k].hd95_pooled, binary.hd95(mask & counted, target))


def test_surface_dice_of_panoptica_is_the_mean_of_two_shares():
    shares = [(one.near_target[1] + one.near_mask[1]) / 2 for one in map(measure, PAIRS)]
    assert_agree(shares, of_panoptica("nsd", None, TOLERANCES[1]))


@cache
def of_deepmind():
    peer = load("surface_distance", "surface-distance")
    with quiet():
        return peer, [peer.compute_surface_distances(*case.masks(), case.spacing) for case in PAIRS]


def test_distances_of_surface_distance():
    """The mean over both surfaces weighs each element by its area."""
    peer, found = of_deepmind()
    theirs = [peer.compute_average_surface_distance(one) for one in found]
    both = [ours(f"mean_from_{side}", "marching_cubes") for side in ("target", "mask")]
    assert_agree(both, np.transpose(theirs), rtol=1e-12)
    assert_agree(ours("masd", "marching_cubes"), np.mean(theirs, axis=1), rtol=1e-12)
    for name, percent in (("hd", 100), ("hd95", 95)):
        theirs = [peer.compute_robust_hausdorff(one, percent) for one in found]
        assert_agree(ours(name, "marching_cubes"), theirs, name, rtol=1e-12)
    sizes = [np.concatenate([one["surfel_areas_gt"], one["surfel_areas_pred"]]) for one in found]
    apart = [np.concatenate([one["distances_gt_to_pred"], one["distances_pred_to_gt"]]) for one in found]
    theirs = [np.average(each, weights=size) for each, size in zip(apart, sizes, strict=True)]
    assert_agree(ours("assd", "marching_cubes"), theirs, rtol=1e-12)


@pytest.mark.parametrize("number", range(len(TOLERANCES)))
def test_surface_dice_of_surface_distance(number):
    peer, found = of_deepmind()
    nsd, target, mask = (
        [values[number] for values in ours(name, "marching_cubes")] for name in ("nsd", "near_target", "near_mask")
    )
    assert_agree(nsd, [peer.compute_surface_dice_at_tolerance(one, TOLERANCES[number]) for one in found], rtol=1e-12)
    shares = [peer.compute_surface_overlap_at_tolerance(one, TOLERANCES[number]) for one in found]
    assert_agree([target, mask], np.transpose(shares), rtol=1e-12)


def test_hausdorff_of_scikit_image_is_that_of_the_surfaces():
    """It measures between sets of points, in pixels; given masks it would measure from inside the objects too."""
    skimage, segmentation = (load(f"skimage.{name}", "scikit-image") for name in ("metrics", "segmentation"))
    for case in PAIRS:
        one, inner = surface_metrics(*case.masks(), spacing=(1,) * case.target.ndim), (np.s_[1:-1],) * case.target.ndim
        padded = [np.pad(mask, 1) for mask in case.masks()]
        edges = [segmentation.find_boundaries(mask, connectivity=1, mode="inner")[inner] for mask in padded]
        assert_agree(one.hd, skimage.hausdorff_distance(*edges), case)


SEG_METRICS = {"hd": "hd", "hd95": "hd95_pooled", "msd": "assd"}  # its names -> ours of the same statistic


def of_seg_metrics(case, *, corners=True):
    load("SimpleITK")
    peer = load("seg_metrics.seg_metrics", "seg-metrics")
    target, mask = (one.astype(np.uint8) for one in case.masks())
    options = {"metrics_names": SEG_METRICS, "fullyConnected": corners}
    with quiet():
        return peer.computeQualityMeasures(mask, target, case.spacing[::-1], **options)


def test_distances_of_seg_metrics_equal_ours_where_no_border_is_thicker_for_its_corners():
    """Boxes inside the image: the pixels with another value beside them are those with one at a corner, too."""
    boxes = [case for case in PAIRS if str(case) in ("wide", "tall", "one pixel each", "two far parts")]
    assert len(boxes) == 4
    for case in boxes:
        theirs = of_seg_metrics(case)
        for name, same in SEG_METRICS.items():
            assert_agree(getattr(measure(case), same), theirs[name], (case, name))


@pytest.mark.slow
@pytest.mark.parametrize("corners", [True, False])
def test_distances_of_seg_metrics_are_to_borders_of_eight_neighbours(corners):
    """On all pairs: from such borders, or those of four, to those of eight; none at the image's edge."""

    def border(mask, connectivity):
        return mask & ~binary_erosion(mask, generate_binary_structure(mask.ndim, connectivity), border_value=1)

    for case in PAIRS:
        target, mask = case.masks()
        axes = mask.ndim
        found = [
            distance_transform_edt(~border(other, axes), sampling=case.spacing)[border(one, axes if corners else 1)]
            for one, other in ((mask, target), (target, mask))
        ]
        both, theirs = np.concatenate(found), of_seg_metrics(case, corners=corners)
        wanted = [both.max(), np.percentile(both, 95), both.mean()]
        assert_agree([theirs[name] for name in SEG_METRICS], wanted, case, rtol=1e-5, atol=1e-5)  # its maps are float32
