"""All experiments, in the order in which they run."""

from __future__ import annotations

from study import (
    abstraction_calls,
    abstraction_levels,
    captures,
    conv_ablation,
    conv_blocks,
    conv_in_model,
    end_to_end,
    layer_times,
    matmul,
    oracles,
    recomputation,
    speedup_network,
    split_linear,
    streamit_programs,
    tanh_example,
    timer_validation,
    toy_example,
    training_batches,
    twelve_models,
)
from study.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    matmul.EXPERIMENT,
    conv_ablation.EXPERIMENT,
    conv_in_model.EXPERIMENT,
    conv_blocks.EXPERIMENT,
    end_to_end.EXPERIMENT,
    timer_validation.EXPERIMENT,
    layer_times.EXPERIMENT,
    oracles.EXPERIMENT,
    speedup_network.EXPERIMENT,
    abstraction_levels.EXPERIMENT,
    abstraction_calls.EXPERIMENT,
    twelve_models.EXPERIMENT,
    twelve_models.GRAPHS,
    toy_example.EXPERIMENT,
    captures.EXPERIMENT,
    training_batches.MEMORY,
    training_batches.THROUGHPUT,
    tanh_example.EXPERIMENT,
    recomputation.EXPERIMENT,
    split_linear.EXPERIMENT,
    streamit_programs.EXPERIMENT,
)
