from .config import ReportConfig as ReportConfig
from .gallery import Gallery as Gallery
from .html import write_report as write_report
from .overlay import draw_overlay as draw_overlay
from .overlay import write_overlay as write_overlay
from .table import print_summary as print_summary
