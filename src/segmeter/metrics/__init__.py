"""labels, target -> numbers: counts first, scores second. NumPy arrays in, and no torch.

What is undefined is NaN in arrays, empty in tables and null in JSON; it is never 0, and every mean says how many it
left out. What is infinite is inf. Per case, class and metric:

| case | status | IoU, Dice, NSD, boundary IoU | HD, HD95, ASSD, MASD | precision | recall |
|---|---|---|---|---|---|
| both hold the class | ok | value | value | value | value |
| both empty | both_empty | NaN, excluded and counted | NaN, excluded and counted | NaN | NaN |
| prediction empty only | prediction_empty | 0 | penalty policy | NaN | 0 |
| target empty only | target_empty | 0 | penalty policy | 0 | NaN |

Penalty policy: `inf` (default; the mean is then inf, and the median and the number of failures stand beside it),
`diagonal` (the image's diagonal in the unit used), `nan`, or a number.
"""
