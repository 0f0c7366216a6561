from regard.activations.interface import (
    ActivationNames as ActivationNames,
    Activations as Activations,
    activation_names as activation_names,
    record as record,
    replace as replace,
)
from regard.activations.weights import intervene as intervene
from regard.attention.records import Record as Record, Records as Records
from regard.convert.exchange import export as export, import_model as import_model
from regard.data.datasets import fetch as fetch
from regard.data.word_alignment import WordAlignment as WordAlignment, read_links as read_links
from regard.decoding.controls import Controls as Controls
from regard.decoding.search_tree import SearchTree as SearchTree
from regard.decoding.translation import Candidate as Candidate
from regard.errors import InputError as InputError, MachineError as MachineError, RegardError as RegardError
from regard.evaluation.bleu import Quality as Quality
from regard.evaluation.scoring import Scored as Scored
from regard.external.comparison import ModelComparison as ModelComparison
from regard.external.head_pruning import PrunedExternalModel as PrunedExternalModel
from regard.external.layer_maps import LongRecord as LongRecord, LongRecords as LongRecords, record_long as record_long
from regard.external.loading import look as look
from regard.external.logit_attribution import (
    LogitAttribution as LogitAttribution,
    WeightedValues as WeightedValues,
    logit_attribution as logit_attribution,
    weighted_values as weighted_values,
)
from regard.external.logit_lens import LogitLens as LogitLens, logit_lens as logit_lens
from regard.external.model import ExternalModel as ExternalModel
from regard.external.next_tokens import NextToken as NextToken, NextTokens as NextTokens, next_tokens as next_tokens
from regard.fast.memory import keep_memory as keep_memory
from regard.interpret.alignment import (
    Agreement as Agreement,
    AligningHeads as AligningHeads,
    Alignment as Alignment,
    AlignmentChoice as AlignmentChoice,
    KeptHeads as KeptHeads,
    RelevanceShare as RelevanceShare,
)
from regard.interpret.attribution.methods import Attribution as Attribution, attribute as attribute
from regard.interpret.circuits import (
    CircuitScores as CircuitScores,
    Faithfulness as Faithfulness,
    faithfulness as faithfulness,
    find_circuit as find_circuit,
)
from regard.interpret.composition import Composition as Composition, composition as composition
from regard.interpret.estimates import Estimate as Estimate
from regard.interpret.examination import Examination as Examination, HeadFindings as HeadFindings, examine as examine
from regard.interpret.explanation import Explanation as Explanation, explain as explain
from regard.interpret.figures import plot as plot
from regard.interpret.health import (
    TrainingWatch as TrainingWatch,
    WatchCallback as WatchCallback,
    WatchRecord as WatchRecord,
    read_watch as read_watch,
    watch as watch,
)
from regard.interpret.importance import HeadImportance as HeadImportance, head_importance as head_importance
from regard.interpret.patching import (
    PatchingResult as PatchingResult,
    PathPatchingResult as PathPatchingResult,
    patch as patch,
    patch_paths as patch_paths,
)
from regard.interpret.roles import HeadRole as HeadRole, HeadRoles as HeadRoles
from regard.interpret.single_heads import (
    HeadEffect as HeadEffect,
    HeadSamples as HeadSamples,
    HeadsBetween as HeadsBetween,
    HeadWeight as HeadWeight,
    HeadWrites as HeadWrites,
    OutputEffect as OutputEffect,
    head_effect as head_effect,
    head_writes as head_writes,
    heads_between as heads_between,
)
from regard.interpret.timeline import (
    Development as Development,
    MedianInterval as MedianInterval,
    RoleHead as RoleHead,
    RoleTimeline as RoleTimeline,
    Timeline as Timeline,
)
from regard.interpret.why import ScorePart as ScorePart, Trace as Trace, TraceNode as TraceNode, Why as Why, why as why
from regard.runs.alignment import LinkedPair as LinkedPair
from regard.runs.derived_runs import PruneReport as PruneReport, average as average, prune as prune
from regard.runs.live_page import write_live_page as write_live_page
from regard.runs.loading import load as load, load_translator as load_translator
from regard.runs.run import Figures as Figures, Run as Run
from regard.runs.run_types import AnyRun as AnyRun
from regard.runs.seeds import ExaminedRuns as ExaminedRuns, examine_runs as examine_runs, timeline as timeline
from regard.runs.sequence_run import (
    PairReport as PairReport,
    PairRun as PairRun,
    SequenceRun as SequenceRun,
    TranslationReport as TranslationReport,
    TranslationRun as TranslationRun,
)
from regard.runs.task_configs import (
    CopyConfig as CopyConfig,
    CountingConfig as CountingConfig,
    DatesConfig as DatesConfig,
    DifferenceConfig as DifferenceConfig,
    DyckConfig as DyckConfig,
    InductionConfig as InductionConfig,
    ModularConfig as ModularConfig,
    MqarConfig as MqarConfig,
    ParityConfig as ParityConfig,
    PhrasesConfig as PhrasesConfig,
    RecallConfig as RecallConfig,
    RegressionConfig as RegressionConfig,
    ReverseConfig as ReverseConfig,
    SelectiveCopyConfig as SelectiveCopyConfig,
    Signal2Config as Signal2Config,
    SignalConfig as SignalConfig,
    SortConfig as SortConfig,
    TextConfig as TextConfig,
    TranslationConfig as TranslationConfig,
)
from regard.runs.tensor_run import (
    AnswerRun as AnswerRun,
    LanguageReport as LanguageReport,
    LanguageRun as LanguageRun,
    TestReport as TestReport,
)
from regard.runs.training import train as train
from regard.server.serve import show as show
from regard.statistics import Interval as Interval
from regard.sweep.comparison import (
    Comparison as Comparison,
    Contrast as Contrast,
    Variant as Variant,
    compare as compare,
)
from regard.sweep.job import Measured as Measured
from regard.tasks.all_tasks import Example as Example, list_tasks as list_tasks
from regard.tasks.pairs import Pair as Pair
from regard.training.config import RunConfig as RunConfig, make_config as make_config
from regard.version import __version__ as __version__
from regard.viz.attention_map import (
    AttentionMap as AttentionMap,
    Maps as Maps,
    Playback as Playback,
    make_maps as make_maps,
    view_weights as view_weights,
)
from regard.viz.maps import LayerMap as LayerMap
from regard.viz.plots import PaperFigure as PaperFigure
from regard.viz.subject import ForwardPass as ForwardPass, Layer as Layer, ProbeInput as ProbeInput, Subject as Subject
from regard_course.check import check as check
from regard_course.report import (
    CaseReport as CaseReport,
    CheckReport as CheckReport,
    Diagnosis as Diagnosis,
    ExerciseReport as ExerciseReport,
    Finding as Finding,
)
from regard_lab.bench.bench import BenchResult as BenchResult, bench as bench
from regard_lab.bench.page import write_bench_page as write_bench_page
from regard_lab.doubts.calibration import (
    FaultResult as FaultResult,
    TrustReport as TrustReport,
    calibrate_doubt as calibrate_doubt,
)
from regard_lab.doubts.doubt import (
    Doubt as Doubt,
    Doubter as Doubter,
    check_doubt_file as check_doubt_file,
    doubt as doubt,
    write_doubts as write_doubts,
)
