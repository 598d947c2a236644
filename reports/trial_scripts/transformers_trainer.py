"""Train a GPT-2 of transformers, from its configuration, with the library's Trainer."""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    """Random tokens, as many texts as asked for."""

    def __init__(self, texts, tokens):
        self.ids = torch.randint(0, 50257, (texts, tokens))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    model = GPT2LMHeadModel(GPT2Config())
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=args.batch,
            gradient_accumulation_steps=2,
            max_steps=args.steps,
            bf16=True,
            gradient_checkpointing=True,
            logging_steps=2,
            save_strategy="no",
            report_to=[],
            dataloader_num_workers=1,
        )
        data = Tokens(args.batch * 2 * args.steps, args.tokens)
        Trainer(model=model, args=arguments, train_dataset=data).train()


if __name__ == "__main__":
    main()
