"""Which pictures an evaluation leaves, and how much of them goes into the HTML report."""

from typing import Annotated, Literal

from pydantic import Field

from segmeter.schema import Config, Unit


class ReportConfig(Config, title="report"):
    """The pictures and the HTML report at the end of an evaluation."""

    html: bool = True
    """Write report.html."""
    overlays: Annotated[int, Unit("cases")] = Field(24, ge=-1)
    """How many cases get a picture: the worst ones, and a fair sample of the rest; the worst case of each class comes
    on top. 0 for none, -1 for all."""
    worst: Annotated[int, Unit("cases")] = Field(12, ge=0)
    """How many of them are the worst ones; worst.csv lists these, with crops of image, target and prediction in worst/
    for labelling them again (`segmeter score`: where it has images)."""
    panel: Annotated[int, Unit("pixels")] = Field(480, ge=128, le=4096)
    """Longest side of one panel of overlays/. Pictures in the report have the case's own pixels up to 1536 a side."""
    pictures: Literal["embed", "link"] = "embed"
    """Whether report.html holds the pictures itself, or shows those in pictures/ beside it, all of them."""
    picture_mb: Annotated[float, Unit("MiB")] = Field(8.0, gt=0)
    """The most that embedded pictures add to report.html."""
