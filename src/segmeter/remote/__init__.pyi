from .cache import Listed as Listed
from .cache import fetch as fetch
from .cache import fetch_ahead as fetch_ahead
from .cache import fetched as fetched
from .cache import list_place as list_place
from .cache import listed_size as listed_size
from .cache import unzipped as unzipped
from .stores import check_target as check_target
from .stores import origin as origin
from .stores import upload_folder as upload_folder
from .stores import url_of as url_of

__all__ = [
    "Listed",
    "check_target",
    "fetch",
    "fetch_ahead",
    "fetched",
    "list_place",
    "listed_size",
    "origin",
    "unzipped",
    "upload_folder",
    "url_of",
]
