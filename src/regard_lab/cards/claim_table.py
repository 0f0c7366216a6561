"""The claims that cards test. A claim is one entry of `CLAIMS`; `regard_lab.cards.claims` has the verdicts."""

import statistics
from collections.abc import Callable, Sequence

from regard_lab.cards.cells import Results
from regard_lab.cards.claims import Claim, MeasuredPair
from regard_lab.cards.probe_training import BASELINE, ProbeResult
from regard_lab.cards.probes import card_probes
from regard_lab.cards.weight_shares import average_heads

Value = Callable[[ProbeResult], float]
SeedDifference = Callable[[Results], list[float]]
BEST_OF_TEN = 0.05
"""Amount by which the best seed must exceed the mean of the seeds to count as misleading."""
LONGER = ("copy", "reverse")
"""Probes that are tested on longer sequences."""
KNOWN = ("induction", "mqar4", "mqar8", "copy", "reverse")
"""Probes in which each output depends on few, known inputs."""


def _score(test: str = "") -> Value:
    return lambda result: result.tests[test].score


def _first(result: ProbeResult) -> float:
    return average_heads(result.tests[""].shares.first)


def _irrelevant(result: ProbeResult) -> float:
    relevant = result.tests[""].shares.relevant
    assert relevant is not None, "the probe has known relevance"
    return 1 - average_heads(relevant)


def _entropy_growth(result: ProbeResult) -> float:
    longer, trained = (average_heads(result.tests[test].shares.entropy) for test in ("x4", ""))
    return longer / max(trained, 1e-9)


def _remaining(result: ProbeResult) -> float:
    return result.tests["x2"].score / max(result.tests[""].score, 1e-9)


def _minus(first: MeasuredPair, second: MeasuredPair, value: Value) -> SeedDifference:
    return lambda results: [
        value(one) - value(other) for one, other in zip(results[first], results[second], strict=True)
    ]


def _averaged(differences: Sequence[SeedDifference]) -> SeedDifference:
    return lambda results: [
        statistics.fmean(row) for row in zip(*(part(results) for part in differences), strict=True)
    ]


def _comparison(
    mechanism: str,
    baseline: str,
    probes: Sequence[str],
    value: Value,
    *,
    name: str,
    source: str,
    measured: str,
    better: bool,
    also_on: tuple[str, ...] = (),  # mechanisms whose cards show the claim too
) -> Claim:
    """Return the claim that a mean over probes is above (`better`) or below that of a baseline."""
    return Claim(
        name=name,
        source=source,
        mechanisms=(mechanism, *also_on),
        needs=tuple((name, probe) for probe in probes for name in (mechanism, baseline)),
        measured=measured,
        difference=_averaged([_minus((mechanism, probe), (baseline, probe), value) for probe in probes]),
        expected="above 0" if better else "below 0",
    )


def _first_token(mechanism: str, name: str, source: str) -> Claim:
    return _comparison(
        mechanism,
        BASELINE,
        ["text"],
        _first,
        name=f"{name} lowers the share of weight on the first token",
        source=source,
        measured=f"share of weight on the first character of text, {mechanism} minus softmax",
        better=False,
    )


def _extrapolation(mechanism: str, baseline: str, name: str, source: str) -> Claim:
    learned = "learned positions" if baseline == BASELINE else baseline
    return _comparison(
        mechanism,
        baseline,
        LONGER,
        _score("x2"),
        name=name,
        source=source,
        measured=f"correct outputs at twice the length of training (copy, reverse), {mechanism} minus {learned}",
        better=True,
    )


def _scores(
    mechanism: str, baseline: str, probes: Sequence[str], name: str, source: str, *, better: bool
) -> Claim:
    return _comparison(
        mechanism,
        baseline,
        probes,
        _score(),
        name=name,
        source=source,
        measured=f"score ({', '.join(probes)}), {mechanism} minus {baseline}",
        better=better,
    )


def _width_effect(results: Results) -> list[float]:
    """Return how much more the linear mechanism gains from width 32 than softmax, over 4 and 8 pairs."""
    gains = [
        _averaged([_minus((name, f"mqar{n}_width32"), (name, f"mqar{n}_width16"), _score()) for n in (4, 8)])
        for name in ("linear", BASELINE)
    ]
    return [linear - softmax for linear, softmax in zip(*(gain(results) for gain in gains), strict=True)]


def _best_above_mean(results: Results) -> list[float]:
    scores = [result.tests[""].score for result in results[BASELINE, "parity"]]
    return [max(scores) - score - BEST_OF_TEN for score in scores]


def _weight_claims() -> tuple[Claim, ...]:
    """Return claims about where weight goes."""
    return (
        _first_token("softmax_one", "softmax with one added to the denominator", "Xiao et al. 2024, table 3"),
        _first_token("sink", "a learned sink", "OpenAI 2025, section 2.2; Xiao et al. 2024, section 3.3"),
        _first_token("output_gate", "an output gate", "Qiu et al. 2025, section 4.3"),
        _first_token("head_gate", "a gate for each head", "Qiu et al. 2025, section 4.3"),
        _first_token("sigmoid", "sigmoid attention", "Gu et al. 2025, section 7.4"),
        _comparison(
            "differential",
            BASELINE,
            KNOWN,
            _irrelevant,
            name="differential attention lowers the weight on irrelevant inputs",
            source="Ye et al. 2024, section 3.4",
            measured=f"share of weight on irrelevant inputs ({', '.join(KNOWN)}), differential minus softmax",
            better=False,
        ),
        _comparison(
            "rotary,scalable",
            "rotary",
            ["copy"],
            _entropy_growth,
            name="scalable softmax stays sharp in longer sequences",
            source="Nakanishi 2025",
            measured="entropy at four times the length divided by that at the length of training (copy), "
            "rotary,scalable minus rotary",
            better=False,
            also_on=("scalable",),
        ),
    )


def _length_claims() -> tuple[Claim, ...]:
    """Return claims about sequences that are longer than those of training."""
    return (
        _extrapolation(
            "alibi",
            BASELINE,
            "ALiBi extrapolates to twice the length and learned positions do not",
            "Press et al. 2022, sections 2.1 and 4",
        ),
        _extrapolation(
            "alibi",
            "sinusoidal",
            "ALiBi extrapolates better than sinusoidal positions",
            "Press et al. 2022, section 4",
        ),
        _extrapolation(
            "rotary",
            BASELINE,
            "rotary positions extrapolate better than learned positions",
            "Press et al. 2022, sections 2.1 and 2.2",
        ),
        _extrapolation(
            "t5",
            BASELINE,
            "the T5 bias extrapolates better than learned positions",
            "Press et al. 2022, sections 2.1 and 2.2",
        ),
        _extrapolation(
            "none",
            BASELINE,
            "no positions extrapolate better than learned positions",
            "Kazemnejad et al. 2023, section 4, where the other positions are sinusoidal",
        ),
        Claim(
            name="no positions extrapolate on copying more than on reversal",
            source="Kazemnejad et al. 2023, figure 3",
            mechanisms=("none",),
            needs=(("none", "copy"), ("none", "reverse")),
            measured="score at twice the length divided by that at the length of training, copy minus reverse",
            difference=_minus(("none", "copy"), ("none", "reverse"), _remaining),
            expected="above 0",
        ),
        _extrapolation(
            "none,forgetting",
            "rotary",
            "forget gates without positions extrapolate better than rotary positions",
            "Lin et al. 2025",
        ),
    )


def _recall_claims() -> tuple[Claim, ...]:
    """Return claims about recall and induction."""
    mqar16 = ("mqar4_width16", "mqar8_width16")
    return (
        _scores(
            "linear",
            BASELINE,
            mqar16,
            "linear attention recalls less than softmax at a small width",
            "Arora et al. 2023, section 4, for gated convolutions",
            better=False,
        ),
        Claim(
            name="linear attention needs width to recall pairs and softmax does not",
            source="Arora et al. 2023, section 4, for gated convolutions",
            mechanisms=("linear",),
            needs=tuple(
                (name, f"mqar{n}_width{width}")
                for name in ("linear", BASELINE)
                for n in (4, 8)
                for width in (16, 32)
            ),
            measured="gain of the score from width 16 to 32 (4 and 8 pairs), linear minus softmax",
            difference=_width_effect,
            expected="above 0",
        ),
        _scores(
            "delta_rule",
            "linear",
            ("mqar4", "mqar8"),
            "the delta rule recalls more pairs than linear attention",
            "Schlag et al. 2021, section 6.1; Yang et al. 2024b",
            better=True,
        ),
        Claim(
            name="induction needs two layers",
            source="Olsson et al. 2022, argument 1",
            mechanisms=(BASELINE,),
            needs=((BASELINE, "induction"), (BASELINE, "induction_one_layer")),
            measured="score on induction, two layers minus one layer",
            difference=_minus((BASELINE, "induction"), (BASELINE, "induction_one_layer"), _score()),
            expected="above 0",
        ),
        _scores(
            "shifted_keys",
            BASELINE,
            ["induction_one_layer"],
            "with shifted keys, one layer learns induction better than one layer without",
            "Olsson et al. 2022, argument 2",
            better=True,
        ),
        Claim(
            name="one layer with shifted keys reaches more than two layers without",
            source="Olsson et al. 2022, argument 2",
            mechanisms=("shifted_keys",),
            needs=(("shifted_keys", "induction_one_layer"), (BASELINE, "induction")),
            measured="score on induction, one layer with shifted keys minus two layers of softmax",
            difference=_minus(("shifted_keys", "induction_one_layer"), (BASELINE, "induction"), _score()),
            expected="above 0",
        ),
    )


def _other_claims() -> tuple[Claim, ...]:
    """Return claims about scores, and about reports of results."""
    return (
        _scores(
            "window:8",
            BASELINE,
            ["induction"],
            "a window of 8 steps hurts induction over longer distances",
            "follows from the reach of stacked windows in Beltagy et al. 2020, section 3.1",
            better=False,
        ),
        _scores(
            "streaming:8:1",
            "window:8",
            ["text"],
            "keeping the first token repairs windowed attention on text",
            "Xiao et al. 2024, sections 3.1 and 3.2",
            better=True,
        ),
        _scores(
            "output_gate",
            BASELINE,
            ["text"],
            "an output gate improves the prediction of text",
            "Qiu et al. 2025, section 3.2",
            better=True,
        ),
        _scores(
            "dot",
            BASELINE,
            card_probes(),
            "without the factor 1 / sqrt(d), dot products learn worse",
            "Vaswani et al. 2017, section 3.2.1",
            better=False,
        ),
        Claim(
            name="the best of several seeds is more than 5 points above their mean (parity)",
            source="Deletang et al. 2023, section 4, reports the maximum of ten",
            mechanisms=(BASELINE,),
            needs=((BASELINE, "parity"),),
            measured="score of the best seed minus that of each seed minus 0.05",
            difference=_best_above_mean,
            expected="above 0",
        ),
    )


CLAIMS = (*_weight_claims(), *_length_claims(), *_recall_claims(), *_other_claims())
"""All claims."""


def claims_of(mechanism: str) -> list[Claim]:
    """Return the claims about a mechanism.

    >>> [claim.expected for claim in claims_of("sink")]
    ['below 0']
    """
    return [claim for claim in CLAIMS if mechanism in claim.mechanisms]
