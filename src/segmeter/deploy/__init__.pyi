from .publish import Agreement as Agreement
from .publish import Exported as Exported
from .publish import export_model as export_model
