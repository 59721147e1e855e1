"""Settings for the pictures of an evaluation and for its HTML report."""

from typing import Annotated, Literal

from pydantic import Field

from segmeter.schema import Config, Unit


class ReportConfig(Config, title="report"):
    """The pictures and the HTML report at the end of an evaluation."""

    html: bool = True
    """Write report.html."""
    overlays: Annotated[int, Unit("cases")] = Field(24, ge=-1)
    """Number of cases that get a picture: the worst ones and a random sample of the others. The worst case of each
    class is added to them. 0 draws none, -1 all."""
    worst: Annotated[int, Unit("cases")] = Field(12, ge=0)
    """Number of worst cases among them. worst.csv lists these, and worst/ has crops of image, target and prediction for
    labelling them again (`segmeter score` needs images for that)."""
    panel: Annotated[int, Unit("pixels")] = Field(480, ge=128, le=4096)
    """Longest side of a panel in overlays/. The report reduces cases above 1536 pixels a side to an
    overview, and zooming in shows their own pixels, where most is wrong first."""
    pictures: Literal["embed", "link"] = "embed"
    """Whether report.html contains the pictures ("embed"), or shows all of those in pictures/ beside it ("link")."""
    picture_mb: Annotated[float, Unit("MiB")] = Field(8.0, gt=0)
    """Limit of the bytes that embedded pictures add to report.html."""
