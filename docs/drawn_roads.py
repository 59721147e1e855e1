"""Draws road scenes with CamVid's classes, and a prediction of each.

They stand in for CamVid's own pictures, which may not be passed on. They share the size and the classes, nothing else.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, label, map_coordinates
from skimage.draw import disk, ellipse, polygon

SHAPE = (360, 480)
VOID = 11
SKY, BUILDING, POLE, ROAD, PAVEMENT, TREE, SIGN, FENCE, CAR, PEDESTRIAN, BICYCLIST = range(11)
LIGHT = {"sun": (1.05, 1.0, 0.92), "overcast": (0.86, 0.88, 0.9), "dusk": (0.5, 0.46, 0.5)}
_PAINT = [(168, 205, 236), (176, 120, 92), (120, 122, 118), (104, 106, 110), (176, 170, 160), (86, 128, 66)]
_PAINT += [(222, 196, 64), (140, 110, 84), (160, 40, 44), (60, 70, 110), (30, 110, 130)]
_CONFUSED = [(PAVEMENT, ROAD), (BUILDING, TREE), (FENCE, BUILDING), (TREE, BUILDING), (BICYCLIST, PEDESTRIAN)]
_SMALL = (POLE, SIGN, PEDESTRIAN, BICYCLIST, CAR)  # of which whole ones may be missed

Map = NDArray[np.uint8]


class _Scene:
    """A picture and its classes, drawn from back to front."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.target = np.zeros(SHAPE, np.uint8)
        self.image = np.zeros((*SHAPE, 3))
        self.horizon = int(rng.integers(140, 180))
        rows = np.linspace(0, 1, SHAPE[0])[:, None]
        self.image[:] = (1 - 0.25 * rows[..., None]) * _PAINT[SKY]

    def fill(self, shape: tuple[Any, Any], k: int, shade: float = 1.0, colour: tuple[int, ...] | None = None) -> None:
        """Paint pixels of a class, with a shade of its colour."""
        self.target[shape] = k
        self.image[shape] = np.array(colour or _PAINT[k]) * shade

    def box(self, top: float, left: float, height: float, width: float) -> tuple[Any, Any]:
        rows = np.array([top, top, top + height, top + height])
        found: tuple[Any, Any] = polygon(rows, np.array([left, left + width, left + width, left]), SHAPE)
        return found

    def ground(self) -> None:
        middle = self.rng.integers(200, 280)
        rows = np.array([self.horizon, self.horizon, 360, 360])
        self.fill(self.box(self.horizon, 0, 220, 480), PAVEMENT)
        self.fill(polygon(rows, np.array([middle - 18, middle + 18, 420, 40]), SHAPE), ROAD)
        for start in np.arange(0.08, 1, 0.22):  # the lane's marks belong to the road
            top, left = self.horizon + 190 * start, middle + (240 - middle) * start
            stripe = self.box(top, left - 2, 22 * start, 1 + 5 * start)
            self.image[stripe] = (214, 214, 206)

    def houses(self) -> None:
        left = -20
        while left < SHAPE[1]:
            width, height = self.rng.integers(46, 110), self.rng.integers(40, 130)
            shade = self.rng.uniform(0.75, 1.2)
            self.fill(self.box(self.horizon - height + 14, left, height, width), BUILDING, shade)
            for row in range(self.horizon - height + 24, self.horizon - 4, 18):
                for column in range(left + 8, left + width - 8, 16):
                    self.image[self.box(row, column, 9, 7)] = (74, 84, 96)
            left += width + int(self.rng.integers(-6, 40))

    def trees(self) -> None:
        for _ in range(self.rng.integers(2, 6)):
            row, column = self.horizon - self.rng.integers(10, 50), self.rng.integers(0, 480)
            for _ in range(9):
                shift = self.rng.normal(0, 13, 2)
                crown = disk((row + shift[0], column + shift[1]), self.rng.uniform(9, 20), shape=SHAPE)
                self.fill(crown, TREE, self.rng.uniform(0.7, 1.15))

    def street(self) -> None:
        if self.rng.random() < 0.6:
            self.fill(self.box(self.horizon + 6, self.rng.integers(-80, 60), 16, 150), FENCE)
        for _ in range(self.rng.integers(1, 5)):
            column, size = self.rng.integers(10, 470), self.rng.uniform(0.7, 1.6)
            self.fill(self.box(self.horizon - 90 * size, column, 112 * size, 2.5 * size), POLE)
            if self.rng.random() < 0.6:
                self.fill(disk((self.horizon - 80 * size, column + 1), 8 * size, shape=SHAPE), SIGN)

    def cars(self) -> None:
        for _ in range(self.rng.integers(1, 5)):
            near = self.rng.uniform(0.12, 0.75)
            top, column = self.horizon + 130 * near, 240 + self.rng.uniform(-1, 1) * (20 + 150 * near)
            size, colour = 14 + 66 * near, tuple(self.rng.integers(40, 220, 3))
            self.fill(self.box(top, column - size / 2, 0.5 * size, size), CAR, 1.0, colour)
            self.fill(self.box(top - 0.28 * size, column - 0.32 * size, 0.3 * size, 0.64 * size), CAR, 0.8, colour)
            self.image[self.box(top - 0.22 * size, column - 0.27 * size, 0.2 * size, 0.54 * size)] = (62, 74, 88)
            for side in (-0.3, 0.3):
                wheel = disk((top + 0.5 * size, column + side * size), 0.11 * size, shape=SHAPE)
                self.fill(wheel, CAR, 1.0, (26, 26, 28))

    def people(self) -> None:
        for k in self.rng.choice([PEDESTRIAN, PEDESTRIAN, BICYCLIST], self.rng.integers(0, 4)):
            near, side = self.rng.uniform(0.2, 0.8), self.rng.choice([-1, 1])
            foot, column, tall = self.horizon + 170 * near, 240 + side * (90 + 130 * near), 22 + 46 * near
            shade = self.rng.uniform(0.6, 1.6)
            self.fill(ellipse(foot - 0.45 * tall, column, 0.45 * tall, 0.14 * tall, shape=SHAPE), k, shade)
            self.fill(disk((foot - tall, column), 0.11 * tall, shape=SHAPE), k, 1.0, (196, 150, 120))
            if k == BICYCLIST:
                for shift in (-0.3, 0.3):
                    self.fill(disk((foot, column + shift * tall), 0.2 * tall, shape=SHAPE), k, 1.0, (34, 34, 36))


def draw_road(rng: np.random.Generator, light: str) -> tuple[Map, Map]:
    """Draw a scene: image (360, 480, 3) and classes (360, 480), with the own car's bonnet as void."""
    scene = _Scene(rng)
    for part in (scene.houses, scene.trees, scene.ground, scene.street, scene.cars, scene.people):
        part()
    bonnet = ellipse(372, 240, 30, 150, shape=SHAPE)
    scene.fill(bonnet, VOID, 1.0, (40, 44, 52))
    grain = gaussian_filter(rng.normal(0, 1, SHAPE), 1.2)[..., None] * 16 + rng.normal(0, 4, (*SHAPE, 3))
    shown = (gaussian_filter(scene.image, (0.6, 0.6, 0)) + grain) * LIGHT[light]
    return shown.clip(0, 255).astype(np.uint8), scene.target


def predict_road(rng: np.random.Generator, target: Map, *, skill: float) -> Map:
    """Predict as a model of a skill from 0 to 1: with wavy borders, missed small things, and classes mixed up."""
    wrong = 1 - skill
    waves = [gaussian_filter(rng.normal(0, 1, SHAPE), 7) * 90 * wrong for _ in range(2)]
    places = np.indices(SHAPE) + np.stack(waves)
    labels = map_coordinates(np.where(target == VOID, ROAD, target), places, order=0, mode="nearest")
    for k in _SMALL:
        numbered, count = label(labels == k)
        for number in range(1, count + 1):
            if rng.random() < (1.3 if k in (POLE, SIGN) else 0.6) * wrong:
                around = labels[np.roll(numbered == number, 25, axis=1)]
                labels[numbered == number] = np.bincount(around[around != k], minlength=1).argmax()
    for first, second in _CONFUSED:
        blobs = gaussian_filter(rng.normal(0, 1, SHAPE), 16) * 40 > 1.4 - 1.6 * wrong
        labels[blobs & (labels == first)] = second
    found: Map = labels.astype(np.uint8)
    return found
