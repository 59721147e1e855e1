from .config import ReportConfig as ReportConfig
from .html import write_report as write_report
from .pictures.flatten import draw_overlay as draw_overlay
from .pictures.flatten import write_overlay as write_overlay
from .summary import print_summary as print_summary
