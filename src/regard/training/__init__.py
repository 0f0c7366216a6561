"""Training: config, registry of models, optimizer recipes, training loop, checkpoints, run folders."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.fast.threads import limit_threads as limit_threads
    from regard.training.adam import make_optimizer as make_optimizer, trained_parameters as trained_parameters
    from regard.training.building import build_model as build_model, load_weights as load_weights, start as start
    from regard.training.checkpoint import Checkpoint as Checkpoint, TrainingState as TrainingState
    from regard.training.config import (
        PARTS as PARTS,
        ModelPart as ModelPart,
        Origin as Origin,
        RunConfig as RunConfig,
        TaskPart as TaskPart,
        TrainingPart as TrainingPart,
        changed_config as changed_config,
        changed_flags as changed_flags,
        make_config as make_config,
    )
    from regard.training.criterion import Criterion as Criterion, find_criterion as find_criterion
    from regard.training.dependent_options import check_dependent as check_dependent
    from regard.training.distributed import (
        SINGLE_PROCESS as SINGLE_PROCESS,
        DistributedContext as DistributedContext,
        join_processes as join_processes,
    )
    from regard.training.objective import Objective as Objective, exact as exact, make_objective as make_objective
    from regard.training.presets import PRESETS as PRESETS
    from regard.training.registry import (
        MODELS as MODELS,
        ModelSpec as ModelSpec,
        find_model as find_model,
        models_for as models_for,
    )
    from regard.training.run_folder import (
        RunFolder as RunFolder,
        check_run_path as check_run_path,
        create_run as create_run,
        find_run as find_run,
    )
    from regard.training.settings import (
        RECIPES as RECIPES,
        OwnAnswerTraining as OwnAnswerTraining,
        OwnSequenceTraining as OwnSequenceTraining,
        PoolingTraining as PoolingTraining,
        QueryTraining as QueryTraining,
        Recipe as Recipe,
        RecurrentTraining as RecurrentTraining,
        TrainingConfig as TrainingConfig,
        TransformerTraining as TransformerTraining,
    )
    from regard.training.signals import Interrupted as Interrupted, Terminated as Terminated
    from regard.training.stored_config import (
        config_from_json as config_from_json,
        upgrade_config as upgrade_config,
        vocabulary_digest as vocabulary_digest,
    )
    from regard.training.tensor_file import (
        digest_tensors as digest_tensors,
        pack_tensors as pack_tensors,
        tensor_specs as tensor_specs,
    )
    from regard.training.token_settings import TokenTraining as TokenTraining
    from regard.training.trainer import (
        Learner as Learner,
        train_steps as train_steps,
    )
    from regard.training.translation_settings import TranslationTraining as TranslationTraining
    from regard.training.trust_code import code_digests as code_digests, trust as trust

late(__name__)
