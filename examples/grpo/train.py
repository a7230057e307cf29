"""GRPO by TRL: a tiny language model learns to sort digits from nothing but right or wrong.

The base is a Llama of 100 thousand weights that has read some sorted digits, and sorts every
second one rightly. What it writes is verified, and it sees no answer. Source: Shao et al.,
DeepSeekMath (2024), section 4.
"""

import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

import hposvc
from trainables.data import prepared

DIGITS, UPDATES, EVALUATIONS = 4, 20, 9  # in a prompt; of an evaluation; in a trial
WORDS = ["<pad>", "<eos>", ">", *map(str, range(10))]
BASE = Path(tempfile.gettempdir(), "hposvc-examples", "sorter")  # trained once on a machine


def train(params: dict[str, Any]) -> None:
    """Report eval_reward: the share of answers to held-out prompts that are right."""
    torch.set_num_threads(1)
    base = prepared(BASE, read_sorted_digits)
    set_seed(0)
    options = GRPOConfig(
        max_steps=UPDATES * EVALUATIONS,
        eval_strategy="steps",
        eval_steps=UPDATES,
        per_device_train_batch_size=128,  # answers
        per_device_eval_batch_size=512,
        num_generations_eval=1,
        max_completion_length=DIGITS + 1,
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
        report_to=[],
        **params,
    )
    prompts = problems(4608, seed=1)
    trainer = GRPOTrainer(
        LlamaForCausalLM.from_pretrained(base),
        is_sorted,
        options,
        train_dataset=Dataset.from_list(prompts[512:]),
        eval_dataset=Dataset.from_list(prompts[:512]),
        processing_class=words(),
        callbacks=[hposvc.hf.Report()],
    )
    trainer.train(resume_from_checkpoint=hposvc.hf.checkpoint())


def problems(count: int, seed: int) -> list[dict[str, str]]:
    """Return different prompts, such as `3 1 4 2 >`."""
    draws = random.Random(seed).sample(range(10**DIGITS), count)
    return [{"prompt": f"{' '.join(f'{draw:0{DIGITS}}')} >"} for draw in draws]


def is_sorted(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """Return the rewards: 1 if an answer has the prompt's digits in order, else 0."""
    pairs = zip(prompts, completions, strict=True)
    return [float(sorted(prompt.split()[:-1]) == answer.split()) for prompt, answer in pairs]


def words() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **special)


def read_sorted_digits(folder: Path) -> None:
    """Train the base on random digits, each row followed by the same in order; save it."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    ends = {"pad_token_id": 0, "eos_token_id": 1}
    config = LlamaConfig(vocab_size=len(WORDS), num_attention_heads=4, **sizes, **ends)
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(40):
        digits = torch.randint(3, len(WORDS), (64, DIGITS))
        arrow, end = torch.full((64, 1), 2), torch.full((64, 1), 1)
        tokens = torch.cat([digits, arrow, digits.sort().values, end], 1)
        optimizer.zero_grad()
        logits = model(tokens[:, :-1]).logits[:, DIGITS:]
        cross_entropy(logits.transpose(1, 2), tokens[:, DIGITS + 1 :]).backward()
        optimizer.step()
    model.save_pretrained(folder)
