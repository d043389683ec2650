"""Pure tensor functions of an RL trainer: no state, no model, and no library but torch and NumPy.

What stands where: ``masks`` (masked sums and means, shape checks), ``statistics`` (global moments),
``chunks`` (action chunks), ``advantages`` (over time), ``groups`` (GRPO), ``reinforce``
(Reinforce++), ``losses``, ``decoupled`` (stale data), ``kl``, ``aggregate`` (one number from many)
and ``distributions``. The names below are the public ones.

Conventions: masks are boolean and true where valid; nothing is broadcast; log-probs, entropies and
KL are in nats; ``T`` steps, ``N`` environments, ``K`` chunks of ``C`` steps, ``B`` rows, ``L``
tokens, ``A`` action width, ``V`` vocabulary.
"""

from rlinf_core.rl.advantages import (
    Advantages,
    critic_free_returns,
    gae,
    last_valid,
    token_gae,
    token_rewards,
)
from rlinf_core.rl.aggregate import (
    Aggregate,
    Metrics,
    episode_weighted_mean,
    mean_metrics,
    merge_metrics,
    seq_mean_token_mean,
    seq_mean_token_sum,
    token_mean,
)
from rlinf_core.rl.chunks import (
    Level,
    aggregate_logprob,
    chunk_flags,
    chunk_rewards,
    flatten_chunks,
    sum_to_level,
    trajectory_scores,
    unflatten_steps,
    valid_until_done,
    valid_within_chunk,
)
from rlinf_core.rl.decoupled import (
    counted_steps,
    decoupled_ppo_loss,
    interpolate_proximal,
    staleness_weight,
)
from rlinf_core.rl.distributions import (
    categorical_entropy,
    categorical_logprobs,
    gaussian_entropy,
    gaussian_logprobs,
)
from rlinf_core.rl.groups import (
    GroupAdvantages,
    GroupFilter,
    center_on_group,
    filter_groups,
    grpo_advantages,
    trajectory_to_steps,
)
from rlinf_core.rl.kl import ESTIMATORS, Estimator, k1, k2, k3, k_abs, kl_loss
from rlinf_core.rl.losses import (
    PPOTerms,
    entropy_loss,
    ppo_loss,
    ppo_terms,
    value_loss,
)
from rlinf_core.rl.masks import (
    Count,
    Mean,
    expand_trailing,
    masked_mean,
    masked_sum,
    where_valid,
)
from rlinf_core.rl.reinforce import reinforce_pp_advantages, reinforce_pp_baseline_advantages
from rlinf_core.rl.statistics import (
    Moments,
    Reduce,
    explained_variance,
    local,
    masked_moments,
    masked_sums,
    moments_from_sums,
    normalize,
    standardize,
)

__all__ = [
    "ESTIMATORS",
    "Advantages",
    "Aggregate",
    "Count",
    "Estimator",
    "GroupAdvantages",
    "GroupFilter",
    "Level",
    "Mean",
    "Metrics",
    "Moments",
    "PPOTerms",
    "Reduce",
    "aggregate_logprob",
    "categorical_entropy",
    "categorical_logprobs",
    "center_on_group",
    "chunk_flags",
    "chunk_rewards",
    "counted_steps",
    "critic_free_returns",
    "decoupled_ppo_loss",
    "entropy_loss",
    "episode_weighted_mean",
    "expand_trailing",
    "explained_variance",
    "filter_groups",
    "flatten_chunks",
    "gae",
    "gaussian_entropy",
    "gaussian_logprobs",
    "grpo_advantages",
    "interpolate_proximal",
    "k1",
    "k2",
    "k3",
    "k_abs",
    "kl_loss",
    "last_valid",
    "local",
    "masked_mean",
    "masked_moments",
    "masked_sum",
    "masked_sums",
    "mean_metrics",
    "merge_metrics",
    "moments_from_sums",
    "normalize",
    "ppo_loss",
    "ppo_terms",
    "reinforce_pp_advantages",
    "reinforce_pp_baseline_advantages",
    "seq_mean_token_mean",
    "seq_mean_token_sum",
    "staleness_weight",
    "standardize",
    "sum_to_level",
    "token_gae",
    "token_mean",
    "token_rewards",
    "trajectory_scores",
    "trajectory_to_steps",
    "unflatten_steps",
    "valid_until_done",
    "valid_within_chunk",
    "value_loss",
    "where_valid",
]
