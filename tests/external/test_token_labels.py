"""Labels of all tokenizers mark word starts in the same way; rows of a decoder have the written tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_models import GPT, SOUND, TEXT as BERT
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn

import regard
from regard.activations.token_labels import TokenLabeler
from regard.viz.maps import word_pieces
from regard.viz.page import map_data


class FixedTokenizer:
    """A tokenizer whose vocabulary is a list of words."""

    all_special_tokens = ("[CLS]", "[SEP]", "<s>", "eos")

    def __init__(self, tokens: str) -> None:
        self.tokens = tokens.split(" ")

    def get_vocab(self) -> dict[str, int]:
        return {token: place for place, token in enumerate(self.tokens)}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.tokens[token_id] for token_id in ids]


KINDS: dict[str, tuple[str, list[str], list[list[int]] | None]] = {
    "SentencePiece": ("<s> ▁un believ able ▁news", ["<s>", "▁un", "believ", "able", "▁news"], [[0], [1, 2, 3], [4]]),
    "bytes": ("<s> un Ġbeliev able ĠÃ¼ber", ["<s>", "▁un", "▁believ", "able", "▁über"], [[0], [1], [2, 3], [4]]),
    "WordPiece": ("[CLS] un ##believ ##able news", ["[CLS]", "▁un", "believ", "able", "▁news"], [[0], [1, 2, 3], [4]]),
    "ends of words": ("un believ able</w> news</w>", ["▁un", "believ", "able", "▁news"], [[0, 1, 2], [3]]),
    "whole words": ("ein kleiner Hund", ["ein", "kleiner", "Hund"], None),
}


@pytest.mark.parametrize(("tokens", "labels", "words"), KINDS.values(), ids=KINDS)
def test_pieces_of_all_tokenizers_are_merged_to_words(tokens: str, labels: list[str], words: Any) -> None:
    known = FixedTokenizer(tokens)
    actual = TokenLabeler(known).labels(list(range(len(known.tokens))))
    assert actual == labels
    assert word_pieces(actual) == words


def test_special_tokens_and_padding_are_marked() -> None:
    assert TokenLabeler(FixedTokenizer("un Ġun")).labels([0], begins=False) == ["un"]  # a token inside a text
    known = FixedTokenizer("▁a ▁b eos")
    assert TokenLabeler(known).labels([0, 1, 2, 2, 2], [True, True, True, False, False]) == [
        "▁a", "▁b", "<eos>", "<pad>", "<pad>"
    ]  # fmt: skip


def test_tokenizers_library() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "Ġ": 1, "b": 2, "Ġb": 3}, [("Ġ", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ids = tokenizer.encode("a b").ids
    assert TokenLabeler(tokenizer).labels(ids) == ["▁a", "▁b"]


def test_unknown_token_id_is_its_own_label() -> None:
    class Small(FixedTokenizer):
        def convert_ids_to_tokens(self, ids: list[int]) -> list[Any]:
            return [self.tokens[token_id] if token_id < len(self.tokens) else None for token_id in ids]

    assert TokenLabeler(Small("ein kleiner Hund")).labels([0, 7]) == ["ein", "[7]"]
    words = Tokenizer(models.WordLevel({"ein": 0}, unk_token="ein"))
    assert TokenLabeler(words).labels([0, 7]) == ["ein", "[7]"]


Build = Callable[[str], Any]
TROCR = {
    "vocab_size": 60, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES = ("t5", "bart", "mbart", "marian", "pegasus", "m2m_100", "led", "switch_transformers", "whisper")
COMPOSED = ("bert to bert", "vit to bert", "vit to gpt2", "vit to trocr", "wav2vec2 to bert", "fsmt")


class NumberTokenizer:
    """A tokenizer whose tokens are their numbers."""

    pad_token_id = 0

    def get_vocab(self) -> dict[str, int]:
        return {str(each): each for each in range(99)}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(each) for each in ids]


def named(tokens: Tensor) -> list[str]:
    return [str(each) for each in tokens.tolist()]


def composed(name: str) -> tuple[Any, dict[str, Any]]:
    """Build an encoder-decoder from two models, and the inputs of its encoder."""
    import transformers

    t: Any = transformers
    torch.manual_seed(0)
    if name == "fsmt":
        sizes = {f"{part}_{key}": each for part in ("encoder", "decoder") for key, each in
                 {"layers": 2, "attention_heads": 4, "ffn_dim": 48}.items()}  # fmt: skip
        config: Any = t.FSMTConfig(
            langs=["a", "b"], src_vocab_size=60, tgt_vocab_size=60, d_model=32, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, max_length=20, **sizes,
        )  # fmt: skip
        return t.FSMTForConditionalGeneration(config).eval(), {"input_ids": torch.randint(3, 60, (2, 7))}
    one, other = name.split(" to ")
    decoders = {"bert": (t.BertConfig, BERT), "gpt2": (t.GPT2Config, GPT), "trocr": (t.TrOCRConfig, TROCR)}
    kind, sizes = decoders[other]
    decoder: Any = kind(**sizes)
    if one == "bert":
        config = t.EncoderDecoderConfig.from_encoder_decoder_configs(t.BertConfig(**BERT), decoder)
        model: Any = t.EncoderDecoderModel(config)
        inputs = {"input_ids": torch.randint(3, 60, (2, 7))}
    elif one == "vit":
        small = {key: BERT[key] for key in list(BERT)[1:5]}
        encoder: Any = t.ViTConfig(image_size=8, patch_size=4, **small)
        config = t.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
        model, inputs = t.VisionEncoderDecoderModel(config), {"pixel_values": torch.randn(2, 3, 8, 8)}
    else:
        encoder = t.Wav2Vec2Config(**SOUND)
        config = t.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
        model, inputs = t.SpeechEncoderDecoderModel(config), {"input_values": torch.randn(2, 400)}
    for each in (model.config, model.generation_config):
        each.decoder_start_token_id, each.pad_token_id = 1, 0
    return model.eval(), inputs


@pytest.mark.parametrize("name", [*FAMILIES, *COMPOSED])
@torch.no_grad()
def test_rows_have_written_tokens(small: Any, name: str) -> None:
    if name in COMPOSED:
        model, inputs = composed(name)
    else:
        model, inputs = small.build(small.known[name]), small.make_inputs(small.known[name])
        inputs.pop("decoder_input_ids")
    read = torch.randint(3, 60, (2, 5))  # equal to the number of steps of an image in `composed`
    with regard.record(model, tokenizer=NumberTokenizer()) as records:
        logits = model(**inputs, decoder_input_ids=read).logits
    _check(records, 1, [*named(read[1, 1:]), str(int(logits[1, -1].argmax()))], named(read[1]))
    for beams in (1, 2):
        with regard.record(model, tokenizer=NumberTokenizer()) as records:
            written = model.generate(**inputs, max_new_tokens=4, do_sample=False, num_beams=beams)
        begun = named(written[1]) if name != "whisper" else ["1", *named(written[1])]  # without its start token
        _check(records, 1, begun[1:], begun[:-1])


def _check(records: Any, row: int, written: list[str], read: list[str]) -> None:
    kinds = set()
    for layer, record in records.items():
        queries, keys = record.labels_of(row)
        kinds.add(record.kind)
        assert record.written == (record.kind != "encoder"), layer
        if record.kind != "encoder":
            assert list(queries) == written, layer
            assert record.kind == "cross" or list(keys) == read, layer
    assert kinds >= {"decoder", "cross"}


@torch.no_grad()
def test_labels_padding_prefixes_and_sampling(small: Any) -> None:
    model, cross = small.build(small.known["bart"]), "model.decoder.layers.0.encoder_attn"
    source, read = torch.randint(3, 60, (2, 6)), torch.randint(3, 60, (2, 6))

    def rows(run: Callable[[], Any], row: int = 1, **options: Any) -> tuple[Any, list[str]]:
        with regard.record(model, tokenizer=NumberTokenizer(), **options) as records:
            output = run()
        return output, list(records[cross].labels_of(row)[0] or ())

    labels = torch.randint(3, 60, (2, 6))
    labels[1, 4:] = -100
    output, labelled = rows(lambda: model(input_ids=source, labels=labels))
    assert labelled[:4] == named(labels[1, :4]) and labelled[4] == str(int(output.logits[1, 4].argmax()))
    there = torch.ones_like(read)
    there[1, 4:] = 0  # the fourth token ends the sequence, and the model predicts the next one
    output, labelled = rows(lambda: model(input_ids=source, decoder_input_ids=read, decoder_attention_mask=there))
    assert labelled == [*named(read[1, 1:4]), str(int(output.logits[1, 3].argmax())), "<pad>", "<pad>"]
    _, labelled = rows(lambda: model.model(input_ids=source, decoder_input_ids=read))
    assert labelled == [*named(read[1, 1:]), "<next>"]  # without logits, the last token is unknown
    _, labelled = rows(lambda: model(input_ids=source, decoder_input_ids=read), rows=[2, 0], layers=[cross])
    assert labelled == [str(int(read[1, 3])), str(int(read[1, 1]))]
    torch.manual_seed(1)
    extra: dict[str, Any]
    for extra in ({}, {"decoder_input_ids": read[:, :3]}, {"use_cache": False}, {"num_return_sequences": 2}):

        def write(more: dict[str, Any] = extra) -> Any:
            return model.generate(input_ids=source, do_sample=True, max_new_tokens=4, **more)

        written, labelled = rows(write)
        assert labelled == named(written[1, 1:])


@torch.no_grad()
def test_decoder_only_rows_have_read_tokens(model_of: Build, tokenizer: Any) -> None:
    attention = regard.look(model_of("gpt2"), tokenizer).attend("the cat sat")
    for layer in attention.layers.values():
        assert layer.query_labels == layer.key_labels == ["the", "cat", "sat"] and not layer.written
    assert [each["written"] for each in map_data(attention)["layers"]] == [False] * len(attention.layers)


@torch.no_grad()
def test_subject_labels_rows_with_its_target(model_of: Build, tokenizer: Any) -> None:
    subject = regard.look(model_of("t5"), tokenizer)
    attention = subject.attend("the cat sat", target="a big dog")
    layers = [layer for layer in attention.layers.values() if layer.kind != "encoder"]
    assert len(layers) == 4
    for layer in layers:
        assert layer.query_labels == attention.outputs == ["a", "big", "dog"] and layer.written
        assert layer.kind == "cross" or layer.key_labels == ["<pad>", "a", "big"]
    attention = subject.attend("the cat sat", generate=4)
    assert all(
        layer.query_labels == attention.outputs for layer in attention.layers.values() if layer.kind != "encoder"
    )


@pytest.mark.slow
@torch.no_grad()
def test_long_source_has_written_labels(model_of: Build, tokenizer: Any) -> None:
    attention = regard.look(model_of("t5"), tokenizer).attend(" ".join(["the cat sat"] * 350), target="a big dog")
    [first, *_] = [layer for layer in attention.layers.values() if layer.kind == "cross"]
    assert first.rows is not None and first.rows.queries == ["a", "big", "dog"] and first.query_labels == ["0 a"]


class CrossAttentionModel(nn.Module):
    """A source and a target; the target attends to the source."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        found: Tensor = self.layer(self.embed(target), self.embed(source), tgt_mask=mask)
        return found


def test_custom_labels_never_label_rows_with_the_source() -> None:
    def read(inputs: Any) -> tuple[Tensor, Tensor]:
        source, target = inputs if isinstance(inputs, tuple) else (inputs, "xyz")
        one, other = (torch.tensor([[ord(each) % 30 for each in text]]) for text in (source, "<" + target[:-1]))
        return one, other

    torch.manual_seed(0)
    subject = regard.look(CrossAttentionModel(), read, names=list, inputs=["abc"])
    cross = subject.attend("abc").layers["layer.multihead_attn"]  # of a target of equal length without known names
    assert (cross.query_labels, cross.key_labels) == (["0", "1", "2"], ["a", "b", "c"]) and not cross.written
    attention = subject.attend("abc", target="pqr").layers
    cross, own = attention["layer.multihead_attn"], attention["layer.self_attn"]
    assert (cross.query_labels, cross.key_labels) == (["p", "q", "r"], ["a", "b", "c"]) and cross.written
    assert (own.query_labels, own.key_labels) == (["p", "q", "r"], ["<start>", "p", "q"]) and own.written
