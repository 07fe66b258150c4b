"""BayOTIDE's traffic of Guangzhou, with BayOTIDE itself beside.

Protocol, written before the runs of the results page.

Data: imputegap's 214 roads at 500 times, which are BayOTIDE's (the last ones but one of the public tensor), in km/h.
Every value is hidden with probability .3, or .5: 70 and 50 % observed, as in the paper. Methods: the default imputer;
BayOTIDE by the code that imputegap 1.1.2 brings, with its authors' parameters of this set (which are the defaults
there), learning from every value that is shown (imputegap's own call hides a part of them from it), 100 draws; the
same without its seasonal processes, as in its authors' study of parts (added after a first run: the seasonal ones start
with variances up to 4e34, which float64 does not carry); lines; imputegap's CDRec, SVT, TRMF and KNNImpute, on
roads standardised by what they show, without which some of them fail.

RMSE and MAE of hidden values, CRPS (ours and BayOTIDE's of the normal law with their means and deviations; its own of
the draws divides by the mean of the values, and so does the column of relative CRPS), coverage of 95 %, CPU seconds.
Published figures are the authors', in their public repository xuangu-fang/BayOTIDE (answers to reviewers).
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.atomic_files import write_text

from .imputegap import GPImputer, algorithm, part
from .sets import append_row, imputegap_file
from .tsi import scores

__all__ = ["guangzhou", "guangzhou_table"]

Array = NDArray[np.float64]
Filled = tuple[Array, Array | None]
METHODS = ("cgp", "BayOTIDE", "BayOTIDE, trend alone", "lines", "KNNImpute", "SVT", "TRMF", "CDRec")
_COLUMNS = ("observed", "masking", "method", "rmse", "mae", "crps", "relative", "nll", "coverage", "seconds")
_PUBLISHED = {0.7: (3.724, 2.611, 0.053), 0.5: (3.820, 2.687, 0.055)}


def guangzhou(
    out: Path, observed: tuple[float, ...] = (0.5, 0.7), maskings: int = 1, methods: tuple[str, ...] = METHODS
) -> None:
    """Guangzhou's traffic: ``guangzhou.csv``, a line for each masking and method, and ``guangzhou.md``, the table.

    Lines that the CSV has are left as they are, so that a run can be continued.

    Args:
        out: folder of the results.
        observed: shares of the values that are shown.
        maskings: number of them.
        methods: which of the methods.
    """
    out.mkdir(parents=True, exist_ok=True)
    path, truth = out / "guangzhou.csv", np.loadtxt(imputegap_file("z_guangzhou.txt")).T
    for share, masking, method in ((o, n, m) for n in range(maskings) for o in observed for m in methods):
        cell = {"observed": share, "masking": masking, "method": method}
        if path.exists() and (pd.read_csv(path)[list(cell)] == list(cell.values())).all(axis=1).any():
            continue
        gaps = np.random.default_rng(masking).random(truth.shape) >= share
        start = time.process_time()
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            mean, sd = _filled(method, np.where(gaps, np.nan, truth))
        seconds = time.process_time() - start
        row = scores(truth[gaps], mean[gaps], None if sd is None else sd[gaps])
        row["rmse"] = row["mse"] ** 0.5
        if "crps" in row:
            row["relative"] = row["crps"] / float(np.abs(truth[gaps]).mean())
        append_row(path, cell | {name: row[name] for name in _COLUMNS if name in row} | {"seconds": seconds}, _COLUMNS)
    write_text(out / "guangzhou.md", guangzhou_table(pd.read_csv(path)))


def guangzhou_table(rows: pd.DataFrame) -> str:
    """The results page's table, means over maskings, with what BayOTIDE's authors published."""
    names = "observed", "", "RMSE", "MAE", "CRPS", "/ mean", "in 95 %", "CPU s"
    lines = [f"| {' | '.join(names)} |", "| --- | --- |" + " ---: |" * (len(names) - 2)]
    for share, rows_of_share in rows.groupby("observed", sort=False):
        mean = rows_of_share.groupby("method", sort=False).mean(numeric_only=True)
        for method in (each for each in METHODS if each in mean.index):
            row = mean.loc[method]
            law = (f"{row[each]:.3f}" if np.isfinite(row[each]) else "" for each in ("crps", "relative", "coverage"))
            name = "ours, all defaults" if method == "cgp" else method
            lines.append(
                f"| {share:.0%} | {name} | {row.rmse:.3f} | {row.mae:.3f} | {' | '.join(law)} | {row.seconds:.0f} |"
            )
        if share in _PUBLISHED:
            rmse, mae, crps = _PUBLISHED[share]
            lines.append(f"| {share:.0%} | BayOTIDE, published | {rmse:.3f} | {mae:.3f} | | {crps:.3f} | | |")
    return "\n".join(lines) + "\n"


def _filled(method: str, known: Array) -> Filled:
    if method == "cgp":
        imputer = GPImputer(known).impute()
        return imputer.recov_data, imputer.std
    if method.startswith("BayOTIDE"):
        return _bayotide(known, seasons="trend" not in method)
    if method == "lines":
        return pd.DataFrame(known).interpolate(limit_direction="both").to_numpy(), None
    centre, unit = np.nanmean(known, 0), np.nanstd(known, 0)
    return algorithm(method, (known - centre) / unit)() * unit + centre, None


def _bayotide(known: Array, *, seasons: bool) -> Filled:
    """BayOTIDE's pass and smoothing, as in the loop of its authors."""
    import torch
    import yaml

    utils, model = (part(f"wrapper.AlgoPython.BayOTIDE.{name}") for name in ("utils_BayOTIDE", "model_BayOTIDE"))
    config = yaml.safe_load((Path(utils.__file__).parent / "config" / "imputegap.yaml").read_text())
    config["K_season"] = config["K_season"] if seasons else 0
    seen, none = (~np.isnan(known)).T, np.zeros(known.T.shape)
    masks = {"mask_train": seen * 1.0, "mask_test": none, "mask_valid": none}
    data = {"data": [masks], "raw_data": np.nan_to_num(known.T), "time_uni": np.linspace(0, 1, len(known))}
    torch.manual_seed(300)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npy"
        np.save(path, np.array(data | {"ndims": seen.shape}, dtype=object))
        options = utils.make_hyper_dict(config)
        tide: Any = model.BayTIDE(options, utils.make_data_dict(options, path, fold=0))
    tide.reset()
    for step in range(tide.T):
        tide.filter_predict(step)
        tide.msg_llk_init()
        if not tide.mask_train[:, step].any():
            tide.filter_update_fake(step)
            continue
        for inner in range(options["INNER_ITER"]):
            tide.msg_approx_U(step)
            tide.filter_update(step, inner == options["INNER_ITER"] - 1)
            tide.msg_approx_W(step)
            tide.post_update_W(step)
        tide.msg_approx_tau(step)
        tide.post_update_tau(step)
    tide.smooth()
    tide.post_update_U_after_smooth(0)
    mean = (tide.post_W_m.squeeze(-1) @ tide.post_U_m.squeeze(1)).T
    return mean.numpy(), tide.pred_sample(nsample_=100).std(0).T.numpy()
