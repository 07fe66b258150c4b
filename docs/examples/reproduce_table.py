"""
Reproduce a table
=================

Every number in a report is computed from predictions that lie on disk: the logits of each draw, the labels, nothing
else. We run the demo's smallest form with two methods, and make its table again from those files alone.
"""

import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np
import yaml
from scipy.special import entr, log_softmax, softmax
from sklearn.metrics import roc_auc_score

from cgp.plotting import example_gallery
from experiments.cli import CONFIGS, main

# %%
# Run
# ---
# A YAML file says all there is to say about an experiment. This one takes the demo's own, two of its methods, one
# seed and four epochs: enough to see that it works, not to compare anything. Without these changes it is ``make
# demo``.

config = yaml.safe_load((CONFIGS / "demo.yaml").read_text())
config["methods"] = {name: config["methods"][name] for name in ("softmax", "kep_svgp")}
config["training"] |= {"epochs": 4, "warmup_epochs": 1}

folder = Path(tempfile.mkdtemp())
(folder / "config.yaml").write_text(yaml.safe_dump(config))
out = folder / "run"
with contextlib.redirect_stdout(io.StringIO()):
    main(["demo", "--config", str(folder / "config.yaml"), "--out", str(out), "--quick", "--workers", "1"])

for path in sorted(out.glob("*/*/predictions/*.npz"))[:5]:
    print(path.relative_to(out))

# %%
# Read
# ----
# ``logits`` has a row a draw, (S, N, C). Probabilities are averaged over draws, not logits.


def predictions(method, name):
    """Logits (S, N, C) and labels (N,), which OOD inputs have not."""
    (path,) = out.glob(f"**/{method}*/**/predictions/{name}.npz")
    with np.load(path) as saved:
        return saved["logits"].astype(float), saved.get("labels")


def row(method):
    logits, labels = predictions(method, "test")
    p = softmax(logits, -1).mean(0)
    log_p = np.logaddexp.reduce(log_softmax(logits, -1), 0) - np.log(len(logits))
    confidence, right = p.max(-1), p.argmax(-1) == labels
    bins = np.ceil(15 * confidence).clip(1)
    ece = sum(abs((confidence - right)[bins == b].sum()) for b in range(1, 16)) / len(p)
    strange = softmax(predictions(method, "ood-inverted")[0], -1).mean(0)
    entropy = np.concatenate([entr(p).sum(-1), entr(strange).sum(-1)])
    auroc = roc_auc_score(np.repeat([0, 1], [len(p), len(strange)]), entropy)
    return right.mean(), -log_p[np.arange(len(p)), labels].mean(), ece, auroc


print(f"{'':10}{'accuracy':>10}{'NLL':>8}{'ECE':>8}{'AUROC, inverted':>18}")
for method in config["methods"]:
    accuracy, nll, ece, auroc = row(method)
    print(f"{method:10}{accuracy:10.3f}{nll:8.3f}{ece:8.3f}{auroc:18.3f}")

# %%
# The report's own table, for comparison:

print((out / "results.md").read_text().split("\n- ")[0])

# %%
# And a picture from the same file
# --------------------------------
# Which digits does KEP-SVGP find hard? The numbers of the images in the data set are saved as ``ids``.

from sklearn.datasets import load_digits

logits, labels = predictions("kep_svgp", "test")
(path,) = out.glob("**/kep_svgp*/**/predictions/test.npz")
images = load_digits().images[np.load(path)["ids"]] / 16
p = softmax(logits, -1)
epistemic = entr(p.mean(0)).sum(-1) - entr(p).sum(-1).mean(0)
example_gallery(images, epistemic, p.mean(0).argmax(-1), labels=labels, probabilities=p.mean(0).max(-1))
