"""large files -> the windows that a training sample needs, without decoding the rest."""
