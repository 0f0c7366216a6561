"""Interpretation: test with relevance, ablation, probing and alignment whether attention is meaningful."""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.interpret.agreement import Agreement as Agreement
    from regard.interpret.alignment import (
        Alignment as Alignment,
        alignment as alignment,
        error_rate as error_rate,
    )
    from regard.interpret.attribution import (
        METHODS as METHODS,
        Attribution as Attribution,
        Method as Method,
        Trial as Trial,
        attribute as attribute,
    )
    from regard.interpret.composition import Composition as Composition, composition as composition
    from regard.interpret.estimates import Estimate as Estimate
    from regard.interpret.examination import Examination as Examination, examine as examine
    from regard.interpret.examined_runs import ExaminedRuns as ExaminedRuns
    from regard.interpret.explanation import explain as explain
    from regard.interpret.explanation_result import Explanation as Explanation, StepAnswer as StepAnswer
    from regard.interpret.figures import FIGURE_KINDS as FIGURE_KINDS, plot as plot
    from regard.interpret.findings import HeadFindings as HeadFindings
    from regard.interpret.formation import (
        Development as Development,
        MedianInterval as MedianInterval,
        Order as Order,
        RoleHead as RoleHead,
    )
    from regard.interpret.head_scores import HeadScores as HeadScores, measure_heads as measure_heads
    from regard.interpret.head_selection import (
        AligningHeads as AligningHeads,
        AlignmentChoice as AlignmentChoice,
        By as By,
        KeptHeads as KeptHeads,
        choose_heads as choose_heads,
        combine_heads as combine_heads,
    )
    from regard.interpret.importance import (
        HeadImportance as HeadImportance,
        Pruned as Pruned,
        PrunedHeads as PrunedHeads,
        head_importance as head_importance,
        prune_heads as prune_heads,
    )
    from regard.interpret.intermediates import with_sums as with_sums
    from regard.interpret.patching import PatchingResult as PatchingResult, patch as patch
    from regard.interpret.path_patching import (
        PathPatchingResult as PathPatchingResult,
        patch_paths as patch_paths,
    )
    from regard.interpret.probing import Probe as Probe, probe_inputs as probe_inputs
    from regard.interpret.relevance import (
        RelevanceShare as RelevanceShare,
        attention_mass as attention_mass,
        relevance_share as relevance_share,
    )
    from regard.interpret.roles import HeadRole as HeadRole, HeadRoles as HeadRoles, head_roles as head_roles
    from regard.interpret.samples import (
        HeadSample as HeadSample,
        HeadSamples as HeadSamples,
        head_samples as head_samples,
    )
    from regard.interpret.saved_examination import load_examination as load_examination
    from regard.interpret.single_heads import (
        HeadEffect as HeadEffect,
        HeadsBetween as HeadsBetween,
        HeadWeight as HeadWeight,
        HeadWrites as HeadWrites,
        OutputEffect as OutputEffect,
        head_effect as head_effect,
        head_writes as head_writes,
        heads_between as heads_between,
    )
    from regard.interpret.timeline import RoleTimeline as RoleTimeline, Timeline as Timeline
    from regard.interpret.why import why as why
    from regard.interpret.why_result import (
        ScorePart as ScorePart,
        Trace as Trace,
        TraceNode as TraceNode,
        Why as Why,
    )
    from regard.interpret.word_links import (
        Head as Head,
        all_weights as all_weights,
        cross_attention_heads as cross_attention_heads,
        extract_links as extract_links,
        word_weights as word_weights,
    )

late(__name__)
