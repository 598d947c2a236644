"""Train any model of timm as its training script does where nothing is asked for.

SGD with Nesterov momentum, float32, channels first, labels smoothed by 0.1, TF32 in products, a batch prefetched on a
stream of its own; image size and classes are the model's. The script of timm has cuDNN try all its algorithms as well,
which takes minutes of the CPU where no GPU runs them.
"""

import argparse

import timm
import torch
from timm.data import resolve_model_data_config
from timm.data.loader import PrefetchLoader
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--benchmark", action="store_true", help="let cuDNN try its algorithms, as the script of timm does")
args = parser.parse_args()

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.benchmark = args.benchmark
device = torch.device("cuda")
model = timm.create_model(args.model, pretrained=False)
data = resolve_model_data_config(model)
model.to(device=device)
optimizer = create_optimizer_v2(model, opt="sgd", lr=0.1, momentum=0.9, weight_decay=2e-5)
images = torch.zeros(args.batch, *data["input_size"], dtype=torch.uint8).pin_memory()
labels = torch.zeros(args.batch, dtype=torch.int64).pin_memory()
loader = PrefetchLoader([(images, labels)] * args.steps, mean=data["mean"], std=data["std"], device=device)
criterion = LabelSmoothingCrossEntropy(smoothing=0.1).to(device=device)
model.train()
for step, (batch, targets) in enumerate(loader):
    output = model(batch)
    if isinstance(output, (tuple, list)):
        output = output[0]
    loss = criterion(output, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    print(f"step {step}: loss {loss.item():.4g}")
