import random

import numpy as np
import torch

from segmeter.models.checkpoint import plain_state
from segmeter.training.learner import capture_rng, kernels, restore_rng, seed_everything


def draws():
    legacy = np.random.standard_normal(3).tolist()  # noqa: NPY002
    return random.gauss(0, 1), legacy, torch.randn(3).tolist(), torch.rand(1).item()


def test_generators_go_on_where_they_were():
    seed_everything(3)
    draws()  # an odd number of normals leaves the second half of a pair behind, in both generators
    state = plain_state(capture_rng(torch.device("cpu")))
    expected = draws(), draws()
    seed_everything(4)
    restore_rng(state)
    assert (draws(), draws()) == expected


def test_a_state_of_an_earlier_version_is_restored():
    seed_everything(3)
    state = capture_rng(torch.device("cpu"))
    name, words, *rest = state["numpy"]
    assert name == "MT19937"
    earlier = {"key": torch.tensor(words), **dict(zip(("pos", "has_gauss", "gauss"), rest, strict=True))}
    expected = draws()
    restore_rng(plain_state(state | {"numpy": earlier}))
    assert draws() == expected


def test_seeds_decide_what_is_drawn():
    seen = []
    for seed in (0, 0, 1, 2**63 - 1):
        seed_everything(seed)
        seen.append(draws())
    assert seen[0] == seen[1]
    assert len({str(each) for each in seen}) == 3


def test_kernels_are_chosen_for_the_block_alone(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    with kernels(deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
    with kernels(deterministic=False):
        assert torch.backends.cudnn.benchmark
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark) == before
