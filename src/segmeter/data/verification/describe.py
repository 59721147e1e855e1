"""DataReport -> plain values, for a JSON file."""

from typing import Any

from segmeter.classes import ClassSpec
from segmeter.data.config import DataConfig, channel_label
from segmeter.data.verification.intensity import LEVELS, Intensity
from segmeter.data.verification.report import DataReport


def describe_report(report: DataReport, config: DataConfig) -> dict[str, Any]:
    """Everything that a report says of a split but the hash of each file.

    Shares are of the pixels in which the class is decided; None where there are none.
    """
    return {
        "cases": report.n_cases,
        "sizes": [{"height": h, "width": w, "cases": count} for (h, w), count in report.sizes.items()],
        "dtypes": report.dtypes,
        "classes": _classes(report, config.spec()),
        "ignored_share": report.ignored_pixels / report.total_pixels if report.total_pixels else None,
        "intensities": [_values(each, config) for each in report.intensities],
        "content_sha256": report.content_sha256,
        "warnings": list(report.warnings),
    }


def _classes(report: DataReport, spec: ClassSpec) -> dict[str, Any]:
    return {
        name: {
            "pixels": int(report.class_pixels[index]),
            "share": float(report.class_pixels[index] / counted) if (counted := report.counted_pixels[index]) else None,
            "cases": int(report.class_cases[index]),
        }
        for index, name in enumerate(spec.names)
    }


def _values(found: Intensity, config: DataConfig) -> dict[str, Any]:
    channels = {
        channel_label(config, c): {
            "low": float(found.low[c]),
            "high": float(found.high[c]),
            "mean": float(found.mean[c]),
            "std": float(found.std[c]),
            "percentiles": {
                f"{level:g}": float(value) for level, value in zip(LEVELS, found.levels[:, c], strict=True)
            },
        }
        for c in range(len(found.mean))
    }
    return {"dtype": found.dtype, "full_scale": found.full_scale, "pixels": found.pixels, "channels": channels}
