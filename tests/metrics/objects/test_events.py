"""What became of each object: every object is one event, and the numbers add up."""

import numpy as np
import pytest

from segmeter.metrics.objects.matching import INSTANCE_EVENTS, TARGET_EVENTS, choose_pairs, find_events, find_overlaps


def events(target, instances, void=None, threshold=0.5):
    overlaps = find_overlaps(np.array(target), np.array(instances), None if void is None else np.array(void, bool))
    found = find_events(overlaps, choose_pairs(overlaps, threshold))
    ours = dict(zip(overlaps.target_ids.tolist(), (TARGET_EVENTS[k] for k in found.targets), strict=True))
    theirs = dict(zip(overlaps.instance_ids.tolist(), (INSTANCE_EVENTS[k] for k in found.instances), strict=True))
    return ours, theirs, found.numbers()


@pytest.mark.parametrize(
    ("target", "instances", "ours", "theirs"),
    [
        ("1110220", "5550007", {1: "matched", 2: "missed"}, {5: "matched", 7: "spurious"}),
        ("111111", "330440", {1: "split"}, {3: "part", 4: "part"}),  # and its parts are not spurious
        ("11022", "99999", {1: "merged", 2: "merged"}, {9: "merging"}),
        ("111112", "999999", {1: "matched", 2: "merged"}, {9: "matched"}),  # that swallows a small neighbour
        ("11000", "99999", {1: "missed"}, {9: "spurious"}),  # in one that is too large
        ("11111", "33000", {1: "missed"}, {3: "spurious"}),  # a single part does not split it
        ("11022", "09990", {1: "missed", 2: "missed"}, {9: "spurious"}),  # half is not more than half
    ],
    ids=["matched", "split", "merged", "swallowed", "too large", "one part", "half"],
)
def test_events_by_hand(target, instances, ours, theirs):
    found = events([[int(number) for number in target]], [[int(number) for number in instances]])
    assert found[:2] == (ours, theirs)
    names = [*ours.values(), *(event for event in theirs.values() if event != "matched")]
    counted = {name: names.count(name) for name in (*TARGET_EVENTS, "part", "merging", "spurious")}
    assert found[2] == counted


def test_void_objects_are_not_counted():
    _, theirs, _ = events([[1, 1, 0, 0]], [[4, 4, 6, 6]], [[0, 0, 1, 0]])
    assert theirs == {4: "matched", 6: "spurious"}  # half void is not mostly void
    _, theirs, numbers = events([[1, 1, 0, 0, 0]], [[4, 4, 6, 6, 6]], [[0, 0, 1, 1, 0]])
    assert theirs == {4: "matched", 6: "void"}
    assert numbers["spurious"] == 0


@pytest.mark.parametrize("seed", range(50))
def test_every_object_is_one_event_as_loops_over_all_pairs_find_it(seed):
    rng = np.random.default_rng(seed)
    target = np.kron(rng.integers(0, 7, (4, 4)), np.ones((3, 3), int))
    instances = np.where(rng.random((12, 12)) < 0.7, np.roll(target, 1, 1), rng.integers(0, 8, (12, 12)))
    ours, theirs, numbers = events(target, instances)
    masks = {t: target == t for t in ours}
    segments = {s: instances == s for s in theirs}
    share = {(t, s): (masks[t] & segments[s]).sum() for t in masks for s in segments}
    matched = {(t, s) for (t, s), n in share.items() if n / (masks[t] | segments[s]).sum() > 0.5}
    held = {s: [t for t in masks if 2 * share[t, s] > masks[t].sum()] for s in segments}
    parts = {t: [s for s in segments if 2 * share[t, s] > segments[s].sum()] for t in masks}
    for t in masks:
        expected = "missed"
        if any(t == one for one, _ in matched):
            expected = "matched"
        elif any(t in held[s] and len(held[s]) > 1 for s in segments):
            expected = "merged"
        elif len(parts[t]) > 1:
            expected = "split"
        assert ours[t] == expected
    for s in segments:
        expected = "spurious"
        if any(s == other for _, other in matched):
            expected = "matched"
        elif len(held[s]) > 1:
            expected = "merging"
        elif any(s in parts[t] and ours[t] == "split" for t in masks):
            expected = "part"
        assert theirs[s] == expected
    assert sum(numbers[name] for name in TARGET_EVENTS) == len(masks)
    assert numbers["matched"] + numbers["part"] + numbers["merging"] + numbers["spurious"] == len(segments)
