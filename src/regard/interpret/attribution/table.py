"""The table of explanation methods: name, source and function for each level."""

from collections.abc import Mapping
from dataclasses import dataclass

from regard.interpret.attribution import attention_weights, controls, edges, head_ablation, input_ablation
from regard.interpret.attribution.attribution_result import LEVELS, Level
from regard.interpret.attribution.trial import MethodFunction


@dataclass(frozen=True, kw_only=True)
class Method:
    """An explanation method."""

    name: str
    source: str
    """Paper, and section or equation."""
    inputs: MethodFunction | None = None
    heads: MethodFunction | None = None
    edges: MethodFunction | None = None

    @property
    def functions(self) -> Mapping[Level, MethodFunction]:
        """The function of each level at which the method is defined."""
        functions = {level: getattr(self, level) for level in LEVELS}
        return {level: function for level, function in functions.items() if function is not None}

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels at which the method is defined."""
        return tuple(self.functions)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="attention",
            source="mean weight over heads of the last layer that reads the inputs",
            inputs=attention_weights.mean_weights,
        ),
        Method(
            name="ablation_zero",
            source="Li et al. 2016; heads: Michel et al. 2019, section 2.3",
            inputs=input_ablation.zero_inputs,
            heads=head_ablation.zero_heads,
        ),
        Method(
            name="ablation_mean",
            source="Wang et al. 2022, section 2.1",
            inputs=input_ablation.mean_inputs,
            heads=head_ablation.mean_heads,
        ),
        Method(
            name="attribution_patching",
            source="Nanda 2023, Attribution patching: activation patching at industrial scale",
            heads=edges.attribution_patching,
        ),
        Method(
            name="edge_patching",
            source="Goldowsky-Dill et al. 2023, section 3, with one edge as the path",
            edges=edges.patched_edges,
        ),
        Method(name="eap", source="Syed, Rager and Conmy 2023, section 2", edges=edges.eap),
        Method(name="eap_ig", source="Hanna et al. 2024, section 3 (inputs, 5 steps)", edges=edges.eap_ig),
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
        ),
    )
}
"""By name: all explanation methods."""
