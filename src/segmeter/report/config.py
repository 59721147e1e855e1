"""Which pictures an evaluation leaves, and how much of them goes into the HTML report."""

from dataclasses import dataclass

from segmeter.checks import collecting


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """What is drawn after an evaluation.

    Parameters
    ----------
    html
        Write report.html.
    overlays
        How many cases get a picture in overlays/, >= 0: the worst ones, and a fair sample of the rest; -1 for all.
    panel
        Longest side of one panel of a picture, pixels, 128 to 4096.
    worst, others
        How many pictures of the worst cases, and how many of other ones, report.html shows; each 0 to 100.
    max_mb
        The most that pictures add to report.html, MiB, > 0.

    Raises
    ------
    ConfigError
        With every rule that is broken.
    """

    html: bool = True
    overlays: int = 24
    panel: int = 480
    worst: int = 12
    others: int = 6
    max_mb: float = 8.0

    def __post_init__(self) -> None:
        with collecting("report") as problems:
            problems.in_range("overlays", self.overlays, -1)
            problems.in_range("panel", self.panel, 128, 4096)
            problems.in_range("worst", self.worst, 0, 100)
            problems.in_range("others", self.others, 0, 100)
            problems.in_range("max_mb", self.max_mb, 0, above=True)
