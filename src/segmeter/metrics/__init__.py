"""Measures predicted labels against their target: counts first, scores second. Takes NumPy arrays, never torch.

An undefined value is NaN in arrays, empty in tables and null in JSON, but never 0. Every mean comes with the number of
values that it leaves out. An infinite value is inf. Per case, class and metric:

| case | status | IoU, Dice, NSD, boundary IoU | HD, HD95, ASSD, MASD | precision | recall |
|---|---|---|---|---|---|
| both contain the class | ok | value | value | value | value |
| both empty | both_empty | NaN, excluded and counted | NaN, excluded and counted | NaN | NaN |
| prediction empty only | prediction_empty | 0 | penalty policy | NaN | 0 |
| target empty only | target_empty | 0 | penalty policy | 0 | NaN |

Penalty policy: `inf` (default; the mean is then inf too, and comes with the median and the number of failures),
`diagonal` (the image's diagonal in the unit used), `nan`, or a number.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
