"""Gaussian processes that share what they know: for tables with gaps, attention, and how sure a network is."""

import warnings

import lazy_loader

__version__ = "0.1.0"

# linear_operator is imported with a call that torch deprecates: no user of cgp can change that.
warnings.filterwarnings("ignore", message="`torch.jit.script` is (deprecated|not supported)", category=FutureWarning)

# The names stand in __init__.pyi and are imported when they are first used: the command line answers before torch is
# there.
__getattr__, __dir__, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in _names if name != "plotting"]  # which needs an extra: import * does without
