"""The door to river: which of its classes can be stored, and under which kinds.

A kind is a text that is at rest; so are the order and the number of its fields, which belong to
`FORMAT`. A class that is not listed here cannot be part of a model. Nothing is imported before a
program has a step that learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from headrace.errors import PlanError, StateError, call_site

FORMAT = 1  # of the text of a model: kinds, and the places of their fields
RELEASE = "0.26"  # of river, whose fields these are

_TREE = """_split_criterion _leaf_prediction max_depth binary_split _max_size _max_byte_size
    memory_estimate_period stop_mem_management remove_poor_attrs merit_preprune _root
    _n_active_leaves _n_inactive_leaves _inactive_leaf_size_estimate _active_leaf_size_estimate
    _size_estimate_overhead_fraction _growth_allowed _train_weight_seen_by_model grace_period
    delta tau nominal_attributes splitter """
_CLASSIFIER = _TREE + "nb_threshold min_branch_fraction max_share_to_split classes "
_REGRESSOR = _TREE + "leaf_model model_selector_decay min_samples_split "
_FOREST = """data n_models max_features lambda_value metric disable_weighted_vote drift_detector
    warning_detector seed _rng _warning_detection_disabled _warning_detectors
    _drift_detection_disabled _drift_detectors _background _metrics _warning_tracker
    _drift_tracker grace_period max_depth delta tau leaf_prediction nominal_attributes splitter
    binary_split max_size memory_estimate_period stop_mem_management remove_poor_attrs
    merit_preprune """
_LEAF = "stats depth splitter splitters _disabled_attrs _last_split_attempt_at "
_BAYES = _LEAF + "_mc_correct_weight _nb_correct_weight "
_MODEL = _LEAF + "_leaf_model _model_supports_weights "
_ADAPTIVE = _MODEL + "_fmse_mean _fmse_model "
_RANDOM = "max_features rng feature_indices"
_LINEAR = """optimizer loss l2 l1 intercept_init intercept intercept_lr clip_gradient initializer
    _weights _y_name max_cum_l1 cum_l1"""
_NODES, _FORESTS = "tree.nodes", "forest.adaptive_random_forest"

# kind: module of river, class, fields in order
_CLASSES = {
    "hoeffding_tree_classifier": ("tree", "HoeffdingTreeClassifier", _CLASSIFIER),
    "hoeffding_tree_regressor": ("tree", "HoeffdingTreeRegressor", _REGRESSOR),
    "arf_classifier": (
        "forest", "ARFClassifier",
        _FOREST + "split_criterion nb_threshold min_branch_fraction max_share_to_split",
    ),
    "arf_regressor": (
        "forest", "ARFRegressor",
        _FOREST + "leaf_model model_selector_decay min_samples_split aggregation_method "
        "_drift_norm",
    ),
    "arf_tree_classifier": (_FORESTS, "BaseTreeClassifier", _CLASSIFIER + "max_features rng"),
    "arf_tree_regressor": (_FORESTS, "BaseTreeRegressor", _REGRESSOR + "max_features rng"),
    "leaf_majority": (f"{_NODES}.htc_nodes", "LeafMajorityClass", _LEAF),
    "leaf_bayes": (f"{_NODES}.htc_nodes", "LeafNaiveBayes", _LEAF),
    "leaf_bayes_adaptive": (f"{_NODES}.htc_nodes", "LeafNaiveBayesAdaptive", _BAYES),
    "leaf_mean": (f"{_NODES}.htr_nodes", "LeafMean", _LEAF),
    "leaf_model": (f"{_NODES}.htr_nodes", "LeafModel", _MODEL),
    "leaf_adaptive": (f"{_NODES}.htr_nodes", "LeafAdaptive", _ADAPTIVE),
    "random_majority": (f"{_NODES}.arf_htc_nodes", "RandomLeafMajorityClass", _LEAF + _RANDOM),
    "random_bayes": (f"{_NODES}.arf_htc_nodes", "RandomLeafNaiveBayes", _LEAF + _RANDOM),
    "random_bayes_adaptive": (
        f"{_NODES}.arf_htc_nodes", "RandomLeafNaiveBayesAdaptive", _BAYES + _RANDOM,
    ),
    "random_mean": (f"{_NODES}.arf_htr_nodes", "RandomLeafMean", _LEAF + _RANDOM),
    "random_model": (f"{_NODES}.arf_htr_nodes", "RandomLeafModel", _MODEL + _RANDOM),
    "random_adaptive": (f"{_NODES}.arf_htr_nodes", "RandomLeafAdaptive", _ADAPTIVE + _RANDOM),
    "branch": (
        f"{_NODES}.branch", "NumericBinaryBranch", "children stats feature threshold depth",
    ),
    "gaussian_splitter": (
        "tree.splitter", "GaussianSplitter",
        "_min_per_class _max_per_class _att_dist_per_class n_splits",
    ),
    "ebst_splitter": ("tree.splitter", "EBSTSplitter", "_root"),
    "tebst_splitter": ("tree.splitter", "TEBSTSplitter", "_root digits"),
    "ebst_node": (
        "tree.splitter.ebst_splitter", "EBSTNode", "att_val estimator _left _right",
    ),
    "gaussian": ("proba", "Gaussian", "seed _var"),
    "mean": ("stats", "Mean", "n _mean"),
    "var": ("stats", "Var", "ddof mean _S"),
    "accuracy": ("metrics", "Accuracy", "cm"),
    "mse": ("metrics", "MSE", "_mean"),
    "confusion": (
        "metrics", "ConfusionMatrix",
        "_init_classes sum_row sum_col data n_samples total_weight _total_true_positives",
    ),
    "pipeline": ("compose", "Pipeline", "steps"),
    "standard_scaler": (
        "preprocessing", "StandardScaler", "with_std window_size counts means vars",
    ),
    "linear_regression": ("linear_model", "LinearRegression", _LINEAR),
    "logistic_regression": ("linear_model", "LogisticRegression", _LINEAR),
    "sgd": ("optim", "SGD", "lr n_iterations"),
    "adam": ("optim", "Adam", "lr n_iterations beta_1 beta_2 eps m v"),
    "ada_grad": ("optim", "AdaGrad", "lr n_iterations eps g2"),
    "momentum": ("optim", "Momentum", "lr n_iterations rho s"),
    "constant": ("optim.schedulers", "Constant", "learning_rate"),
    "inverse_scaling": ("optim.schedulers", "InverseScaling", "learning_rate power"),
    "zeros": ("optim.initializers", "Zeros", "value"),
    "squared": ("optim.losses", "Squared", ""),
    "absolute": ("optim.losses", "Absolute", ""),
    "log": ("optim.losses", "Log", "weight_pos weight_neg"),
    "adwin": (
        "drift", "ADWIN",
        "_drift_detected delta clock max_buckets min_window_length grace_period _helper",
    ),
    "page_hinkley": (
        "drift", "PageHinkley",
        "_drift_detected min_instances delta threshold alpha mode _x_mean _sum_increase "
        "_sum_decrease _min_increase _max_decrease",
    ),
    "kswin": (
        "drift", "KSWIN",
        "_drift_detected alpha window_size stat_size seed p_value n window _rng",
    ),
    "no_drift": ("drift", "NoDrift", "_drift_detected"),
}  # fmt: skip

CLASSIFIERS = ("hoeffding_tree_classifier", "arf_classifier", "logistic_regression")
BINARY = ("logistic_regression",)  # their labels are false and true
REGRESSORS = ("hoeffding_tree_regressor", "arf_regressor", "linear_regression")
SCALERS = ("standard_scaler",)
DETECTORS = ("adwin", "page_hinkley", "kswin")


@dataclass(frozen=True, slots=True)
class StoredKind:
    """A class that a model may be made of, and which of its fields are stored."""

    kind: str
    made: Any  # the class
    fields: tuple[str, ...]
    names: frozenset[str]


@cache
def kinds() -> dict[str, StoredKind]:
    """The classes that can be stored, by their kinds."""
    found = {}
    for kind, (module, name, fields) in _CLASSES.items():
        made = getattr(import_module(f"river.{module}"), name)
        names = fields.split()
        found[kind] = StoredKind(kind, made, tuple(names), frozenset(names))
    return found


@cache
def by_class() -> dict[type, StoredKind]:
    return {one.made: one for one in kinds().values()}


@cache
def rust() -> tuple[type, type]:
    """River's window of ADWIN, and its vectors of weights."""
    import river._river_rust.drift as window
    import river._river_rust.vectordict as vectors

    return window.AdaptiveWindowing, vectors.VectorDict


def detector(kind: str, options: dict[str, Any]) -> Any:
    """A new detector."""
    return kinds()[kind].made(**options)


@cache
def release() -> str:
    """The installed version of river."""
    from river.__version__ import __version__

    return str(__version__)


def check_release() -> None:
    """Refuse to read or write models with a river whose fields may be others."""
    if release().split(".")[:2] != RELEASE.split("."):
        raise StateError(
            "HR-LEARN-002",
            f"river {release()} is installed, and models are stored as river {RELEASE} has them",
            f"Install it, on every machine of the cluster: pip install 'river=={RELEASE}.*'.",
        )


def check_installed(what: str) -> None:
    """Refuse `what` where the library is missing, or is another version."""
    try:
        release()
    except ImportError as error:
        raise PlanError(
            "HR-LEARN-001",
            f"{what} needs the package river, which is not installed",
            "Install it, on every machine of the cluster: pip install 'headrace[learn]'.",
            site=call_site(),
        ) from error
    check_release()
