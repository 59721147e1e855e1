from .config import ExportConfig as ExportConfig
from .formats import encode_labels_png as encode_labels_png
from .writer import Writer as Writer
