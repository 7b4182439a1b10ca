"""scikit-learn: linear probing, without interventions.

Logistic regression with default settings, in five folds that keep sequences whole. A head is used if its output
predicts the answer, and a direction matters if the coordinate along it does: mean accuracy above that of the most
frequent answer by two standard errors over folds. A variable appears at the first depth with at least half of the
largest gain over its most frequent value; its directions are the rows of the coefficients there.
"""

import numpy as np
import torch
from jaxtyping import Float
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score

from .case import Case, first_above_half, orthonormal


class ByProbing:
    def used_heads(self, case: Case) -> set[tuple[int, int]]:
        found, size = set(), case.model.info.d_head
        for layer, head in case.heads:
            out = case.module.get_submodule(f"layers.{layer}.attn.o_proj")
            mine = slice(head * size, (head + 1) * size)
            seen: list[torch.Tensor] = []
            hook = out.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[0].clone()))
            case.log_probs()
            hook.remove()
            written = seen[0][:, case.scored][..., mine] @ out.weight[:, mine].T
            if _predicts(case, written.detach().double().numpy(), case.answers):
                found.add((layer, head))
        return found

    def depth_of(self, case: Case, variable: str) -> int:
        gains = [_gains(case, case.scored_stream(d), case.labels(variable)).mean() for d in range(case.n_layers + 1)]
        return first_above_half(gains)

    def directions(self, case: Case, variable: str, depth: int) -> Float[np.ndarray, "axis d_model"]:
        points = case.scored_stream(depth)
        fitted = LogisticRegression(max_iter=1000).fit(
            points.reshape(-1, points.shape[-1]), _classes(case.labels(variable)).ravel()
        )
        return orthonormal(np.atleast_2d(fitted.coef_))

    def matters(self, case: Case, direction: Float[np.ndarray, " d_model"], depth: int) -> bool:
        return _predicts(case, (case.scored_stream(depth) @ direction)[..., None], case.answers)


def _predicts(case: Case, points: Float[np.ndarray, "sequence scored feature"], labels: np.ndarray) -> bool:
    gains = _gains(case, points, labels)
    return bool(gains.mean() > 2 * gains.std(ddof=1) / len(gains) ** 0.5 and gains.mean() > 0)


def _gains(case: Case, points: Float[np.ndarray, "sequence scored feature"], labels: np.ndarray) -> np.ndarray:
    """Accuracy above that of the most frequent class, by fold."""
    groups = np.repeat(np.arange(len(points)), points.shape[1])
    x, y = points.reshape(-1, points.shape[-1]), _classes(labels).ravel()
    folds = GroupKFold(5)
    models = LogisticRegression(max_iter=1000), DummyClassifier(strategy="most_frequent")
    mine, commonest = (cross_val_score(model, x, y, groups=groups, cv=folds) for model in models)
    return mine - commonest


def _classes(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
