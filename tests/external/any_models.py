"""Small models of four kinds, with the names of their parts, for tests of attribution and patching."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from small_models import GPT, GROUPED, IMAGE, PAIR, T5, TEXT as BASE
from torch import Tensor, nn

CLEAN, CORRUPTED = "the cat sat on the mat", "the dog sat on the mat"
MASKED = "the cat sat on the <mask>", "the dog sat on the <mask>"
ENDED = f"{CLEAN} </s>", f"{CORRUPTED} </s>"
FALCON = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": False}


@dataclass(frozen=True)
class AnyModel:
    """A model and the names of its parts."""

    cls: str
    sizes: dict[str, Any]
    embedding: str
    projection: str
    """Output projection of the heads in the second layer of self-attention."""
    inputs: tuple[Any, Any] = (CLEAN, CORRUPTED)
    answers: tuple[str, str] | None = ("ran", "small")
    config: str = ""
    """Class of the config, if it does not follow from the class of the model."""


LABELS = ("LABEL_0", "LABEL_1")
BERT = "bert.encoder.layer.1.attention.output.dense"
H = "transformer.h.1."
FALCONS = ("transformer.word_embeddings", f"{H}self_attention.dense")
BART = ("model.encoder.embed_tokens", "model.encoder.layers.1.self_attn.out_proj")
MIXER = ("embed", "blocks.1.mixer.proj")
LLAMA = ("model.embed_tokens", "model.layers.1.self_attn.o_proj")
WORDS = "embeddings.word_embeddings"
IMAGES = tuple(torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
MODELS = {
    # decoders
    "gpt2": AnyModel("GPT2LMHeadModel", GPT, "transformer.wte", f"{H}attn.c_proj", config="GPT2Config"),
    "gpt-neox": AnyModel("GPTNeoXForCausalLM", BASE, "gpt_neox.embed_in", "gpt_neox.layers.1.attention.dense"),
    "llama": AnyModel("LlamaForCausalLM", GROUPED, *LLAMA),
    "olmo2": AnyModel("Olmo2ForCausalLM", BASE, *LLAMA),
    "olmo2-grouped": AnyModel("Olmo2ForCausalLM", GROUPED, *LLAMA),
    "phi3": AnyModel("Phi3ForCausalLM", BASE, *LLAMA),
    "phi3-grouped": AnyModel("Phi3ForCausalLM", BASE | {"num_key_value_heads": 2}, *LLAMA),
    "qwen2": AnyModel("Qwen2ForCausalLM", GROUPED, *LLAMA),
    "qwen3": AnyModel("Qwen3ForCausalLM", GROUPED, *LLAMA),
    "gemma2": AnyModel("Gemma2ForCausalLM", GROUPED, *LLAMA),
    "falcon": AnyModel("FalconForCausalLM", FALCON, *FALCONS),
    "falcon-grouped": AnyModel(
        "FalconForCausalLM", FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True}, *FALCONS
    ),
    "bloom": AnyModel("BloomForCausalLM", {"vocab_size": 60, "hidden_size": 32, "n_layer": 2, "n_head": 4}, *FALCONS),
    "codegen": AnyModel("CodeGenForCausalLM", GPT | {"rotary_dim": 4}, "transformer.wte", f"{H}attn.out_proj"),
    "opt": AnyModel(
        "OPTForCausalLM",
        BASE | {"ffn_dim": 48, "word_embed_proj_dim": 32},
        "model.decoder.embed_tokens",
        "model.decoder.layers.1.self_attn.out_proj",
    ),
    # encoders and classifiers
    "bert": AnyModel("BertForMaskedLM", BASE, f"bert.{WORDS}", BERT, MASKED),
    "bert-classifier": AnyModel(
        "BertForSequenceClassification", BASE | {"num_labels": 3}, f"bert.{WORDS}", BERT, answers=LABELS
    ),
    "bert-number": AnyModel(
        "BertForSequenceClassification", BASE | {"num_labels": 1}, f"bert.{WORDS}", BERT, answers=None
    ),
    "bert-tokens": AnyModel(
        "BertForTokenClassification", BASE | {"num_labels": 5}, f"bert.{WORDS}", BERT, answers=LABELS
    ),
    "bert-span": AnyModel("BertForQuestionAnswering", BASE, f"bert.{WORDS}", BERT, answers=("0", "1")),
    "roberta": AnyModel("RobertaForMaskedLM", BASE, f"roberta.{WORDS}", BERT.replace("bert", "roberta"), MASKED),
    "distilbert": AnyModel(
        "DistilBertForSequenceClassification",
        {"vocab_size": 60, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
        f"distilbert.{WORDS}",
        "distilbert.transformer.layer.1.attention.out_lin",
        answers=LABELS,
    ),
    "electra": AnyModel(
        "ElectraForPreTraining",
        BASE | {"embedding_size": 16},
        f"electra.{WORDS}",
        BERT.replace("bert", "electra"),
        answers=None,
    ),
    "albert": AnyModel(
        "AlbertForMaskedLM",
        BASE | {"embedding_size": 16, "num_hidden_layers": 1},
        f"albert.{WORDS}",
        "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense",
        MASKED,
    ),
    "deberta": AnyModel(
        "DebertaForMaskedLM",
        BASE | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        f"deberta.{WORDS}",
        BERT.replace("bert", "deberta"),
        MASKED,
    ),
    "modernbert": AnyModel(
        "ModernBertForMaskedLM",
        BASE | {"local_attention": 4, "cls_token_id": 1, "sep_token_id": 2},
        "model.embeddings.tok_embeddings",
        "model.layers.1.attn.Wo",
        MASKED,
    ),
    "gpt2-classifier": AnyModel(
        "GPT2ForSequenceClassification", GPT, "transformer.wte", f"{H}attn.c_proj", answers=LABELS, config="GPT2Config"
    ),
    "vit": AnyModel(
        "ViTForImageClassification",
        IMAGE | {"num_labels": 4},
        "vit.embeddings.patch_embeddings.projection",
        "vit.layers.1.attention.o_proj",
        IMAGES,  # type: ignore[arg-type]
        LABELS,
    ),
    # encoder-decoders
    "t5": AnyModel("T5ForConditionalGeneration", T5, "encoder.embed_tokens", "encoder.block.1.layer.0.SelfAttention.o"),
    "bart": AnyModel("BartForConditionalGeneration", PAIR, *BART),
    "bart-classifier": AnyModel("BartForSequenceClassification", PAIR, *BART, ENDED, LABELS),
    "marian": AnyModel("MarianMTModel", PAIR, *BART, config="MarianConfig"),
}


def build(model: AnyModel) -> Any:
    """Build a model of transformers with random weights."""
    import transformers

    stem = model.cls.partition("For")[0]
    config = getattr(transformers, model.config or f"{stem}Config")(**model.sizes)
    return draw_weights(getattr(transformers, model.cls)(config))


def draw_weights(module: nn.Module) -> nn.Module:
    """Draw weights with which heads differ."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * parameter[0].numel() ** -0.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return module.eval()


class Heads(nn.Module):
    """Attention with one projection for queries, keys and values."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal, self.qkv, self.proj = causal, nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, states: Tensor) -> Tensor:
        query, key, value = self.qkv(states).unflatten(-1, (3, 4, -1)).transpose(1, 3).unbind(2)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: Tensor = self.proj(context.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """A block before whose parts states are normalized. The name of its feed-forward layer is misleading."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.first, self.mixer, self.second = nn.LayerNorm(32), Heads(causal), nn.LayerNorm(32)
        self.out_proj = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 32))

    def forward(self, states: Tensor) -> Tensor:
        states = states + self.mixer(self.first(states))
        out: Tensor = states + self.out_proj(self.second(states))
        return out


class Decoder(nn.Module):
    """A decoder that embeds positions before tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.words = nn.Embedding(80, 32), nn.Embedding(60, 32)
        self.blocks = nn.Sequential(*(Layer(causal=True) for _ in range(2)))
        self.head = nn.Linear(32, 60)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.places(torch.arange(tokens.shape[1])).expand(len(tokens), -1, -1)
        out: Tensor = self.head(self.blocks(places + self.words(tokens)))
        return out


class Classifier(nn.Module):
    """A classifier that embeds one-hot vectors, or another embedding, and pools states."""

    def __init__(self, embed: nn.Module, classes: int) -> None:
        super().__init__()
        self.embed, self.head = embed, nn.Linear(32, classes)
        self.blocks = nn.ModuleList(Layer(causal=False) for _ in range(2))

    def forward(self, values: Tensor) -> dict[str, Tensor]:
        if isinstance(self.embed, nn.Linear) and not values.is_floating_point():
            values = F.one_hot(values, 60).float()
        states = self.embed(values)
        states = states.flatten(2).transpose(1, 2) if states.dim() > 3 else states
        for block in self.blocks:
            states = block(states)
        return {"answer": self.head(states.mean(1)).squeeze(-1)}


class TorchClassifier(nn.Module):
    """PyTorch's encoder with a head for classes."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True)
        self.words, self.head = nn.Embedding(60, 32), nn.Linear(32, 3)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.words(tokens)).mean(1))
        return out


HAND: dict[str, tuple[Callable[[], nn.Module], AnyModel]] = {
    "decoder": (Decoder, AnyModel("", {}, "words", "blocks.1.mixer.proj", answers=("3", "4"))),
    "classifier": (lambda: Classifier(nn.Embedding(60, 32), 3), AnyModel("", {}, *MIXER, answers=("0", "1"))),
    "one-hot": (lambda: Classifier(nn.Linear(60, 32), 3), AnyModel("", {}, *MIXER, answers=("0", "1"))),
    "number": (lambda: Classifier(nn.Embedding(60, 32), 1), AnyModel("", {}, *MIXER, answers=None)),
    "torch": (TorchClassifier, AnyModel("", {}, "words", "encoder.layers.1.self_attn", answers=("0", "1"))),
    "image": (
        lambda: Classifier(nn.Conv2d(3, 32, 4, 4), 3),
        AnyModel("", {}, *MIXER, IMAGES, ("0", "1")),  # type: ignore[arg-type]
    ),
}
