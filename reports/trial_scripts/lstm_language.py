"""Train a language model of two LSTM layers, its hidden state carried from batch to batch."""

import argparse

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, words=33278, width=650, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=0.5)
        self.dropout = nn.Dropout(0.5)
        self.decoder = nn.Linear(width, words)

    def forward(self, ids, hidden):
        output, hidden = self.lstm(self.dropout(self.embedding(ids)), hidden)
        return self.decoder(self.dropout(output)), hidden


parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=20)
parser.add_argument("--length", type=int, default=35)
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()

device = torch.device("cuda:0")
model = LanguageModel().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=20.0)
corpus = torch.randint(0, 33278, (args.steps * args.length + 1, args.batch)).to(device)
hidden = (torch.zeros(2, args.batch, 650, device=device), torch.zeros(2, args.batch, 650, device=device))
for step in range(args.steps):
    start = step * args.length
    ids, targets = corpus[start : start + args.length], corpus[start + 1 : start + 1 + args.length].reshape(-1)
    hidden = tuple(each.detach() for each in hidden)
    optimizer.zero_grad()
    logits, hidden = model(ids, hidden)
    loss = nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    print(f"batch {step}: perplexity {loss.exp().item():.2f}")
