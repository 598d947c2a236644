"""Train any model of timm with the defaults of its training script: SGD with Nesterov momentum, float32, no AMP.

The loop is as `train.py` of timm has it where nothing is asked for: images of the size and the number of classes of the
model's configuration, a step a batch, `zero_grad` before backward, channels first.
"""

import argparse
import time

import timm
import torch

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--steps", type=int, default=4)
args = parser.parse_args()

device = torch.device("cuda")
model = timm.create_model(args.model, pretrained=False)
size = timm.data.resolve_model_data_config(model)["input_size"]
model.to(device=device)
optimizer = timm.optim.create_optimizer_v2(model, opt="sgd", lr=0.1, momentum=0.9, weight_decay=2e-5)
criterion = torch.nn.CrossEntropyLoss().to(device=device)
model.train()
for step in range(args.steps):
    began = time.time()
    images = torch.randn(args.batch, *size).to(device=device)
    labels = torch.randint(0, model.num_classes, (args.batch,)).to(device=device)
    output = model(images)
    if isinstance(output, (tuple, list)):
        output = output[0]
    loss = criterion(output, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    print(f"step {step}: loss {loss.item():.4g}, {time.time() - began:.3f} s")
