"""What every model that answers with numbers can do: the contract that training, testing and looking talk to.

    logits = model(inputs, mask)        B x To x classes

Letters: B batch, T input steps, To output steps. A model of one's own derives from `AnswerModel`; `regard train
TASK --model module:Class` trains it (docs/extending.md).
"""

from torch import Tensor

from regard.models.model import TaskModel


class AnswerModel(TaskModel):
    """Base of all models that answer an input with a number for each output step.

    The constructor takes an instance of `config_class` and, by name, what the model has to know of a task: how
    many `letters` there are, the most input steps (`input_len`), how many `outputs`, the `classes` of each, and
    `vary_len`, whether sequences of all lengths will come.
    """

    answers = "numbers"

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T) int64; `mask` (B, T), True before the end.

        Past the end, inputs hold -1.
        """
        raise NotImplementedError
