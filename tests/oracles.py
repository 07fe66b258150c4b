"""Dense float64 algebra in numpy, from the formulas with explicit inverses: the oracles of the tests."""

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Unit squared exponential from pairwise differences."""
    return np.exp(-0.5 * cdist(a, b, "sqeuclidean"))


def log_normal(columns: np.ndarray, covariance: np.ndarray) -> float:
    """Sum over columns of log N(column; 0, covariance)."""
    normal = multivariate_normal(np.zeros(len(covariance)), covariance, allow_singular=False)
    return float(sum(normal.logpdf(c) for c in columns.T))


def latent_cross(q: np.ndarray, k: np.ndarray, o: np.ndarray, noise: float) -> np.ndarray:
    """C = K_qo (K_o + noise I)^-1 K_ok."""
    return rbf(q, o) @ np.linalg.inv(rbf(o, o) + noise * np.eye(len(o))) @ rbf(o, k)


def conditional(K_q: np.ndarray, C: np.ndarray, K_k: np.ndarray, noise: float) -> np.ndarray:
    """K_q − C (K_k + noise I)^-1 Cᵀ."""
    return K_q - C @ np.linalg.inv(K_k + noise * np.eye(len(K_k))) @ C.T


def sparse_latent(q, k, o, v, S, S2, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean, and K_qm M K_mq with noise in M, of the two-hop DTC posterior (CGPT (33)-(35), app. D)."""
    K_mm, K_ll = rbf(S, S), rbf(S2, S2)
    inverse_m = np.linalg.inv(K_mm + rbf(S, o) @ rbf(o, S) / noise)
    inverse_l = np.linalg.inv(K_ll + rbf(S2, k) @ rbf(k, S2) / noise)
    G = inverse_m @ rbf(S, o) / noise
    mean = rbf(q, S) @ G @ rbf(o, S2) @ inverse_l @ rbf(S2, k) @ v / noise
    M = inverse_m + G @ (noise * np.eye(len(o)) + rbf(o, S2) @ inverse_l @ rbf(S2, o)) @ G.T
    return mean, rbf(q, S) @ M @ rbf(S, q)


def nystrom(a: np.ndarray, S: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Q = K_aS K_SS^-1 K_Sb."""
    b = a if b is None else b
    return rbf(a, S) @ np.linalg.inv(rbf(S, S)) @ rbf(S, b)
