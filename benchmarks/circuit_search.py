"""Time the search of circuits in a model with the shape of GPT-2 small and random weights (needs the extra peers).

`python benchmarks/circuit_search.py eap eap_ig acdc` prints the processor time of one thread for one pair of inputs of
10 tokens. ACDC runs for a minute with a threshold that keeps nearly every edge, its slowest case: the time for all
edges is computed from the time of the edges that it tried.
"""

import resource
import sys
import time
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import regard
from regard.interpret import circuits

TOKENS = 10
LIMIT = 60.0  # seconds of ACDC


class TimeUpError(Exception):
    """ACDC has run for its time."""


def timed(method: str, subject: Any, pairs: list[Any]) -> str:
    """Run a method, and describe its time."""
    edges: list[str] = []
    measured, begin = circuits._Pair.measure, time.process_time()

    def limited(pair: Any, kept: Any, loss: Any = "difference") -> float:
        if time.process_time() - begin > LIMIT:
            raise TimeUpError
        edges.append("")
        return measured(pair, kept, loss)

    circuits._Pair.measure = limited  # type: ignore
    try:
        found = regard.find_circuit(subject, pairs, method=method, threshold=1e-12)
        return f"{time.process_time() - begin:.0f} s for {len(found.scores):,} edges"
    except TimeUpError:
        return f"{LIMIT / len(edges):.3f} s for an edge, mean of {len(edges)}"
    finally:
        circuits._Pair.measure = measured  # type: ignore


def main() -> None:
    """Print the time of each method."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = GPT2Config()
    model = GPT2LMHeadModel(config).eval()
    subject = regard.look(model, lambda ids: {"input_ids": torch.tensor([ids])}, inputs=[list(range(TOKENS))])
    pairs = [tuple(torch.randint(config.vocab_size, (TOKENS,)).tolist() for _ in range(2))]
    for method in sys.argv[1:]:
        print(f"{method}: {timed(method, subject, pairs)}", flush=True)
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")


if __name__ == "__main__":
    main()
