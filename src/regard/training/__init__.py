"""Training: config, registry of models, optimizer recipes, training loop, checkpoints, run folders."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.fast.threads import limit_threads
    from regard.training.adam import make_optimizer, trained_parameters
    from regard.training.building import build_model, load_weights, start
    from regard.training.checkpoint import Checkpoint, TrainingState
    from regard.training.config import (
        PARTS,
        ModelPart,
        Origin,
        RunConfig,
        TaskPart,
        TrainingPart,
        changed_config,
        changed_flags,
        make_config,
    )
    from regard.training.criterion import Criterion, find_criterion
    from regard.training.distributed import SINGLE_PROCESS, DistributedContext, join_processes
    from regard.training.objective import Objective, exact, make_objective
    from regard.training.presets import PRESETS
    from regard.training.registry import MODELS, ModelSpec, find_model, models_for
    from regard.training.run_folder import RunFolder, check_run_path, create_run, find_run
    from regard.training.settings import (
        RECIPES,
        OwnAnswerTraining,
        OwnSequenceTraining,
        PoolingTraining,
        QueryTraining,
        Recipe,
        RecurrentTraining,
        TrainingConfig,
        TransformerTraining,
    )
    from regard.training.signals import Interrupted
    from regard.training.stacked import StackedLearner, stackable
    from regard.training.stored_config import config_from_json, upgrade_config, vocabulary_digest
    from regard.training.tensor_file import digest_tensors, pack_tensors, tensor_specs
    from regard.training.token_settings import TokenTraining
    from regard.training.trainer import Learner, SingleLearner, train_steps
    from regard.training.translation_settings import TranslationTraining
    from regard.training.trust_code import code_digests, trust

late(__name__)

__all__ = [
    "MODELS",
    "PARTS",
    "PRESETS",
    "RECIPES",
    "SINGLE_PROCESS",
    "Checkpoint",
    "Criterion",
    "DistributedContext",
    "Interrupted",
    "Learner",
    "ModelPart",
    "ModelSpec",
    "Objective",
    "Origin",
    "OwnAnswerTraining",
    "OwnSequenceTraining",
    "PoolingTraining",
    "QueryTraining",
    "Recipe",
    "RecurrentTraining",
    "RunConfig",
    "RunFolder",
    "SingleLearner",
    "StackedLearner",
    "TaskPart",
    "TokenTraining",
    "TrainingConfig",
    "TrainingPart",
    "TrainingState",
    "TransformerTraining",
    "TranslationTraining",
    "build_model",
    "changed_config",
    "changed_flags",
    "check_run_path",
    "code_digests",
    "config_from_json",
    "create_run",
    "digest_tensors",
    "exact",
    "find_criterion",
    "find_model",
    "find_run",
    "join_processes",
    "limit_threads",
    "load_weights",
    "make_config",
    "make_objective",
    "make_optimizer",
    "models_for",
    "pack_tensors",
    "stackable",
    "start",
    "tensor_specs",
    "train_steps",
    "trained_parameters",
    "trust",
    "upgrade_config",
    "vocabulary_digest",
]
