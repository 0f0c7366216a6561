"""The table of explanation methods: name, source and function for each level."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.interpret.attribution import (
    attention_paths,
    attention_weights,
    controls,
    edges,
    head_ablation,
    head_gradients,
    input_ablation,
    input_gradients,
)
from regard.interpret.attribution.attribution_result import LEVELS, Level
from regard.interpret.attribution.trial import MethodFunction


@dataclass(frozen=True, kw_only=True)
class Method:
    """An explanation method."""

    name: str
    source: str
    """Paper, or a description."""
    inputs: MethodFunction | None = None
    heads: MethodFunction | None = None
    edges: MethodFunction | None = None

    @property
    def functions(self) -> Mapping[Level, MethodFunction]:
        functions = {level: getattr(self, level) for level in LEVELS}
        return {level: function for level, function in functions.items() if function is not None}

    @property
    def levels(self) -> tuple[Level, ...]:
        return tuple(self.functions)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="attention",
            source="mean over heads of the last layer that reads the inputs; heads: Voita et al. 2019",
            inputs=attention_weights.mean_weights,
            heads=attention_weights.confidence,
        ),
        Method(
            name="best_head",
            source="the head of that layer with the most attention on relevant inputs in other inputs",
            inputs=attention_weights.best_head,
        ),
        Method(
            name="weighted_values",
            source="Kobayashi et al. 2020, Attention is not only a weight",
            inputs=attention_weights.weighted_values,
            heads=attention_weights.weighted_confidence,
        ),
        Method(
            name="output_norm",
            source="norm of what a head adds to the residual stream; Kobayashi et al. 2020",
            heads=attention_weights.output_norms,
        ),
        Method(
            name="attention_x_gradient",
            source="Barkan et al. 2021, Grad-SAM, with absolute gradients",
            inputs=attention_weights.weights_times_gradient,
        ),
        Method(
            name="rollout",
            source="Abnar and Zuidema 2020, Quantifying attention flow in transformers",
            inputs=attention_paths.rollout,
        ),
        Method(
            name="flow",
            source="Abnar and Zuidema 2020, Quantifying attention flow in transformers",
            inputs=attention_paths.flow,
        ),
        Method(
            name="value_zeroing",
            source="Mohebbi et al. 2023, Quantifying context mixing in transformers",
            inputs=attention_paths.value_zeroing,
        ),
        Method(
            name="gradient",
            source="Simonyan et al. 2014, Deep inside convolutional networks; here the norm",
            inputs=input_gradients.gradient_norm,
        ),
        Method(
            name="gradient_x_input",
            source="Shrikumar et al. 2016, Not just a black box",
            inputs=input_gradients.gradient_times_input,
        ),
        Method(
            name="integrated_gradients",
            source="Sundararajan et al. 2017, Axiomatic attribution; baseline zero",
            inputs=input_gradients.integrated_from_zero,
        ),
        Method(
            name="integrated_gradients_mean",
            source="Sundararajan et al. 2017, Axiomatic attribution; baseline: mean of other inputs",
            inputs=input_gradients.integrated_from_mean,
        ),
        Method(
            name="ablation_zero",
            source="Li et al. 2016, Representation erasure; heads: Michel et al. 2019",
            inputs=input_ablation.zero_inputs,
            heads=head_ablation.zero_heads,
        ),
        Method(
            name="ablation_mean",
            source="Wang et al. 2023, Interpretability in the wild",
            inputs=input_ablation.mean_inputs,
            heads=head_ablation.mean_heads,
        ),
        Method(
            name="ablation_resampled",
            source="Chan et al. 2022, Causal scrubbing: resampling ablation",
            inputs=input_ablation.resampled_inputs,
            heads=head_ablation.resampled_heads,
        ),
        Method(
            name="other_tokens",
            source="mean change over all other tokens at a position",
            inputs=input_ablation.all_others,
        ),
        Method(
            name="gate",
            source="Michel et al. 2019, Are sixteen heads really better than one?",
            heads=head_gradients.gate,
        ),
        Method(
            name="attribution_patching_mean",
            source="Nanda 2023, with the mean of other inputs as the corrupted context",
            heads=head_gradients.attribution_patching,
        ),
        Method(
            name="logit_attribution",
            source="Elhage et al. 2021, A mathematical framework for transformer circuits; norms frozen",
            heads=head_gradients.direct_parts,
        ),
        Method(
            name="attribution_patching",
            source="Nanda 2023, Attribution patching: activation patching at industrial scale",
            heads=edges.attribution_patching,
        ),
        Method(
            name="edge_patching",
            source="Goldowsky-Dill et al. 2023, Path patching, with one edge as the path",
            edges=edges.patched_edges,
        ),
        Method(
            name="eap",
            source="Syed, Rager and Conmy 2023, Attribution patching outperforms automated circuit discovery",
            edges=edges.eap,
        ),
        Method(
            name="eap_ig",
            source="Hanna et al. 2024, Have faith in faithfulness (inputs, 5 steps)",
            edges=edges.eap_ig,
        ),
        Method(
            name="oracle",
            source="the known answer",
            inputs=controls.oracle,
            heads=controls.oracle,
            edges=controls.oracle,
        ),
        Method(
            name="random",
            source="uniform random scores",
            inputs=controls.random_inputs,
            heads=controls.random_heads,
            edges=edges.random_edges,
        ),
    )
}
"""By name: all explanation methods."""
