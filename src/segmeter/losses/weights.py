"""Pixel counts per class -> class weights (NumPy)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from segmeter.checks import expected, nearest
from segmeter.errors import InputError

SCHEMES = ("auto", "log", "mild", "median", "inverse")
_LOG_OFFSETS = {"auto": 1.02, "log": 1.02, "mild": 1.1}  # ENet's c, which is 1.02 there


def class_weights(counts: npt.NDArray[np.int64], scheme: str = "auto") -> npt.NDArray[np.float64]:
    """Weights that lift rare classes, from how many pixels each class has in the training set.

    With f the share of a class among all counted pixels:

    * "log": ``1 / log(1.02 + f)``: bounded (1.42 to 50.5), so a class that is nearly absent can't take over.
      "auto" means this one.
    * "mild": ``1 / log(1.1 + f)``: bounded (1.35 to 10.5).
    * "median": ``median(f) / f``, the median over the classes that occur; unbounded.
    * "inverse": ``1 / (K f)``: every class has the same total weight; unbounded.

    Parameters
    ----------
    counts : (K,) integer
        Pixels per class, >= 0, ignored pixels left out.
    scheme
        "auto", "log", "mild", "median" or "inverse".

    Returns
    -------
    (K,) float64. A class without pixels gets the largest value of "log" and "mild", and 0 from "median" and "inverse".

    Raises
    ------
    InputError
        Counts are negative, all zero, not integers or not (K,); or the scheme is unknown.

    References
    ----------
    Paszke et al. 2016, arXiv:1606.02147, section 5.2 ("log", and with another constant "mild"); Eigen and Fergus 2015,
    arXiv:1411.4734, section 6.3.2 ("median"; theirs counts only images that contain the class, ours all of them).

    Examples
    --------
    >>> print(class_weights(np.array([900, 90, 10]), "median").round(3))
    [0.1 1.  9. ]
    """
    if scheme not in SCHEMES:
        rule = f"to be one of {', '.join(SCHEMES)}"
        raise InputError(expected("class_weights", "scheme", rule, repr(scheme), nearest(scheme, SCHEMES)))
    array: npt.NDArray[Any] = np.asarray(counts)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        given = f"{array.dtype} {array.shape}"
        raise InputError(expected("class_weights", "counts", "to be integers (K,)", given))
    if array.min() < 0 or array.max() == 0:
        rule = "to be >= 0 with one above 0"
        raise InputError(expected("class_weights", "counts", rule, [int(count) for count in array]))
    share: npt.NDArray[np.float64] = array / array.sum(dtype=np.float64)
    if scheme in _LOG_OFFSETS:
        return np.asarray(1 / np.log(_LOG_OFFSETS[scheme] + share))
    top = float(np.median(share[share > 0])) if scheme == "median" else 1 / array.size
    weights: npt.NDArray[np.float64] = np.divide(top, share, out=np.zeros_like(share), where=share > 0)
    return weights
