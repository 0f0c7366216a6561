"""Small random language models of Hugging Face, with a tokenizer of bytes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

SENTENCE = "The quick brown fox\n\njumps over the lazy dog; grüße <|endoftext|> 27.\n"
SMALL_GPT2 = {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 160}
SMALL_LLAMA = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 160,
}


def word_tokenizer(words: Iterable[str], unknown: str, **special: str) -> Any:
    """Return a tokenizer of whole words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    make: Any = transformers.PreTrainedTokenizerFast
    return make(tokenizer_object=tokenizer, unk_token=unknown, **special)


def make_tokenizer(*, begin: bool = False) -> Any:
    """Return a byte-level BPE of GPT-2's form; `begin`: with a begin of sequence, as in Llama."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        special_tokens=["<|endoftext|>", "<s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([SENTENCE] * 5, trainer)
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<s>" if begin else "<|endoftext|>"
    )


def write_model(folder: Path, kind: str = "gpt2", *, begin: bool = False, shards: str = "5GB", **options: Any) -> Path:
    """Write a random model of a model type, with its tokenizer, and return its folder."""
    import transformers

    sizes: dict[str, Any] = SMALL_GPT2 if kind == "gpt2" else SMALL_LLAMA
    tokens = {"bos_token_id": 0, "eos_token_id": 0, "vocab_size": 290}
    config = transformers.AutoConfig.for_model(kind, **{**sizes, **tokens, **options})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.4)
            else:
                torch.nn.init.uniform_(parameter, *((-0.5, 0.5) if name.endswith("bias") else (0.5, 1.5)))
    model.tie_weights()
    model.save_pretrained(folder, max_shard_size=shards)
    make_tokenizer(begin=begin).save_pretrained(folder)
    return folder
