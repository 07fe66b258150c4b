"""The application: data, training, prediction, metrics, report. Run it with `python -m experiments`."""

import warnings

# Libraries announce their own deprecations at import; over a progress bar they only hide what matters.
warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=FutureWarning)
