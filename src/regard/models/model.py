"""What models of all kinds have in common, whatever they answer with."""

from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.attention import Positions, Rotary
from regard.models.config import ModelConfig


class TaskModel(nn.Module):
    """Base of `AnswerModel` and `Seq2Seq`: what training, testing and looking ask of any model."""

    answers: ClassVar[Literal["numbers", "text"]]
    """What it answers an input with."""
    config_class: ClassVar[type[ModelConfig]] = ModelConfig
    """The dataclass of what can be chosen of the model; its fields are flags."""
    compilable: ClassVar[bool] = False
    """Whether its layers are blocks of `regard.attention`, which `torch.compile` takes."""
    cross_layers: tuple[str, ...] = ()
    """Names of the attention layers in which outputs attend to inputs; the first is the one that is tested."""

    @property
    def input_embedding(self) -> nn.Module:
        """The module whose first output in a run, (B, T, D), is the inputs' embedding."""
        raise NotImplementedError

    @property
    def input_positions(self) -> Positions | Rotary | None:
        """What tells the input's steps where they stand; None where nothing does."""
        return None

    @property
    def learned_positions(self) -> Tensor | None:
        """A learned vector for each input step, (T, D); None where there are none."""
        return None
