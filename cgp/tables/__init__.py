"""Tables with gaps: filled, with intervals, by correlated Gaussian processes, and what fills them best."""

import lazy_loader

# The names stand in __init__.pyi and are imported when they are first used: a file is read before torch is there.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
