"""Writes a tiny random model for vLLM into a folder: two layers, a tokenizer trained on the spot, nothing downloaded.

    python tiny_model.py ./tiny
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=512,
    special_tokens=["<s>", "</s>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
)
tokenizer.train_from_iterator(["the pool is full and the request waits in the queue"] * 50, trainer)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
fast.save_pretrained(folder)

config = LlamaConfig(
    vocab_size=len(fast),
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=64,
    max_position_embeddings=2048,
    bos_token_id=0,
    eos_token_id=1,
    torch_dtype="bfloat16",
    architectures=["LlamaForCausalLM"],
)
config.save_pretrained(folder)
print(json.dumps({"folder": str(folder), "vocabulary": len(fast)}))
