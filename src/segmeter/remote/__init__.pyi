from .folders import local_folder as local_folder
from .trees import local_path as local_path
from .trees import present as present
from .trees import stored_size as stored_size
from .upload import upload_folder as upload_folder

__all__ = ["local_folder", "local_path", "present", "stored_size", "upload_folder"]
