"""The application: data, training, prediction, metrics, report. Run it with `python -m experiments`."""

import warnings

# Libraries print deprecation warnings at import, which would hide the progress bar.
warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=FutureWarning)
