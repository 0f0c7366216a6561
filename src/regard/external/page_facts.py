"""Facts about an external model that its page displays."""

from typing import Any

from regard.external.model_input import input_name


def page_facts(subject: Any) -> dict[str, Any]:
    """Return the facts that `Subject.about` returns for an `ExternalModel`, and the first inputs of its page."""
    own = [input_name(subject.inputs, number) for number in range(len(subject.inputs))]
    return {
        "task": subject.name,
        "summary": "; ".join(filter(None, (subject.adapter.summary, subject.left_out))),
        "kind": type(subject.model).__name__,
        "step": None,
        "draws": bool(own),
        "snapshots": False,
        "accepts": subject.adapter.accepts if subject.images is None else "an image, PNG or JPEG",
        "pictures": subject.images is not None,
        "texts": own or list(subject.examples.inputs),
        "origin_of_texts": "" if own else subject.examples.origin,
        "examined": {},
    }
