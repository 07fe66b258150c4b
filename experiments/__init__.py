"""The application: data, training, prediction, metrics, report. Run it with `python -m experiments`."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# Libraries print deprecation warnings at import, which would hide the progress bar.
warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=FutureWarning)


@contextmanager
def mistakes_in_a_line() -> Iterator[None]:
    """Within it an error of the user is one line on the standard error, and exit status 2; ctrl-C is 130."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        raise SystemExit(2) from error
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None  # as shells have it
