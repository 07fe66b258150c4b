"""Networks that people have: posteriors around their attention, and how sure they are, measured."""

import lazy_loader

# The names stand in __init__.pyi and are imported when they are first used: a file is read before torch is there.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
