"""Which pictures an evaluation leaves, and how much of them goes into the HTML report."""

from typing import Annotated

from pydantic import Field

from segmeter.schema import Config, Unit


class ReportConfig(Config, title="report"):
    """The pictures and the HTML report at the end of an evaluation."""

    html: bool = True
    """Write report.html."""
    overlays: Annotated[int, Unit("cases")] = Field(24, ge=-1)
    """How many cases get a picture in overlays/: the worst ones, and a fair sample of the rest; -1 for all."""
    panel: Annotated[int, Unit("pixels")] = Field(480, ge=128, le=4096)
    """Longest side of one panel of a picture."""
    worst: Annotated[int, Unit("cases")] = Field(12, ge=0, le=100)
    """How many of the worst cases report.html shows, and worst.csv lists, with crops of image, target and prediction in
    worst/ for labelling them again (`segmeter score`: where it has images)."""
    others: Annotated[int, Unit("cases")] = Field(6, ge=0, le=100)
    """How many pictures of other cases report.html shows."""
    max_mb: Annotated[float, Unit("MiB")] = Field(8.0, gt=0)
    """The most that pictures add to report.html."""
