"""Fine-tune a BERT classifier of transformers: float16 autocast, a gradient scaler, a linear schedule."""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--tokens", type=int, default=128)
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()

model = BertForSequenceClassification(BertConfig(num_labels=2)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
schedule = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=args.steps)
scaler = torch.amp.GradScaler("cuda")
model.train()
for step in range(args.steps):
    batch = {
        "input_ids": torch.randint(0, 30000, (args.batch, args.tokens)),
        "attention_mask": torch.ones(args.batch, args.tokens, dtype=torch.long),
        "labels": torch.randint(0, 2, (args.batch,)),
    }
    batch = {name: value.to("cuda") for name, value in batch.items()}
    with torch.amp.autocast("cuda", dtype=torch.float16):
        loss = model(**batch).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.4f}")
