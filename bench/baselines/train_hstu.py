#!/usr/bin/env python3
"""One epoch of HSTU on a sequence store: turbogr against a padded PyTorch step of the same recipe.

    python3 bench/baselines/train_hstu.py --store stores/ml-1m --config configs/ml1m-hstu.toml --program build/turbogr

Same machine, same number of threads, one after the other in this run. Each side trains the same tokens: windows of
the last S events before the held-out one, sampled softmax with R own negatives a token, AdamW. PyTorch pads a batch to
its longest sequence, as such stacks do. With --device cuda both train on the GPU. Needs the Python packages torch and numpy;
nothing else in turbogr does.
"""
import argparse
import json
import math
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F


class Layer(torch.nn.Module):
    def __init__(self, width, heads, head_dim, max_length, dropout):
        super().__init__()
        self.heads, self.head_dim, self.max_length, self.dropout = heads, head_dim, max_length, dropout
        inner = heads * head_dim
        self.projection = torch.nn.Parameter(torch.randn(width, 4 * inner) * 0.02)
        self.output = torch.nn.Linear(inner, width)
        self.position = torch.nn.Parameter(torch.randn(2 * max_length - 1) * 0.02)

    def forward(self, x, mask):
        batch, length, width = x.shape
        projected = F.silu(F.layer_norm(x, (width,), eps=1e-6) @ self.projection)
        u, v, q, k = projected.chunk(4, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, self.head_dim).transpose(1, 2) for t in (q, k, v))
        i = torch.arange(length, device=x.device)
        bias = self.position[self.max_length - 1 + i[None, :] - i[:, None]]
        weights = F.silu(q @ k.transpose(-1, -2) + bias) / (self.max_length + 11) * mask
        attended = (weights @ v).transpose(1, 2).reshape(batch, length, -1)
        mixed = u * F.layer_norm(attended, attended.shape[-1:], eps=1e-6)
        return x + self.output(F.dropout(mixed, self.dropout, self.training))


class Model(torch.nn.Module):
    def __init__(self, items, width, layers, heads, head_dim, max_length, dropout):
        super().__init__()
        self.items = torch.nn.Parameter(torch.nn.init.trunc_normal_(torch.empty(items + 1, width), std=0.02))
        self.places = torch.nn.Parameter(
            torch.nn.init.trunc_normal_(torch.empty(max_length, width), std=math.sqrt(1 / width)))
        self.dropout = dropout
        self.layers = torch.nn.ModuleList(
            Layer(width, heads, head_dim, max_length, dropout) for _ in range(layers))

    def forward(self, ids):
        length = ids.shape[1]
        valid = ids > 0
        x = self.items[ids] * math.sqrt(self.items.shape[1]) + self.places[:length]
        x = F.dropout(x, self.dropout, self.training) * valid[..., None]
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool, device=ids.device))[None, None] & valid[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return F.normalize(x[valid], dim=-1, eps=1e-6)


def windows_of(store, max_length):
    """(inputs, targets) a user, ids from 1, all but the last event in use."""
    offsets = np.fromfile(store / "user_offsets.bin", dtype=np.int64)
    items = np.fromfile(store / "items.bin", dtype=np.int32).astype(np.int64) + 1
    pairs = []
    for begin, end in zip(offsets[:-1], offsets[1:]):
        if end - begin < 3:
            continue
        history = items[begin:end - 1]
        start = max(0, len(history) - 1 - max_length)
        pairs.append((history[start:-1], history[start + 1:]))
    return pairs


def padded_epoch(a, threads):
    """Seconds and tokens of one epoch, after a few steps to warm up."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    store = pathlib.Path(a.store)
    pairs = windows_of(store, a.max_length)
    items = json.loads((store / "manifest.json").read_text())["items"]
    model = Model(items, a.width, a.layers, a.heads, a.head_dim, a.max_length, a.dropout).to(a.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0)
    order = np.random.default_rng(1).permutation(len(pairs))
    batches = [order[s:s + a.batch] for s in range(0, len(order), a.batch)]

    def step(rows):
        longest = max(len(pairs[r][0]) for r in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        targets = torch.zeros(len(rows), longest, dtype=torch.long)
        for place, r in enumerate(rows):
            ids[place, :len(pairs[r][0])] = torch.from_numpy(pairs[r][0])
            targets[place, :len(pairs[r][1])] = torch.from_numpy(pairs[r][1])
        ids, targets = ids.to(a.device), targets.to(a.device)
        wanted = targets[ids > 0]
        query = model(ids)
        table = F.normalize(model.items, dim=-1, eps=1e-6)
        negatives = torch.randint(1, items + 1, (len(wanted), a.negatives), device=a.device)
        positive = (query * table[wanted]).sum(-1, keepdim=True) / 0.05
        others = torch.einsum("td,trd->tr", query, table[negatives]) / 0.05
        others = others.masked_fill(negatives == wanted[:, None], -5e4)
        loss = F.cross_entropy(torch.cat([positive, others], 1), torch.zeros_like(wanted))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return len(wanted), loss.detach()

    def wait():
        if a.device == "cuda":
            torch.cuda.synchronize()

    for rows in batches[:2]:
        step(rows)
    wait()
    begin = time.time()
    done = [step(rows) for rows in batches]
    wait()
    return time.time() - begin, sum(tokens for tokens, _ in done), float(done[-1][1])


def our_rate(a, threads):
    """tokens_per_s of turbogr's own epoch, and its last loss, from the run's metrics."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([a.program, "train", a.config, f"--data.store={a.store}", f"--run.dir={folder}/run",
                        "--train.epochs=1", f"--train.threads={threads}", f"--train.device={a.device}", "--log.every=1000000",
                        "--log.progress=none", "--eval.max_users=1"], check=True, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in open(f"{folder}/run/metrics.jsonl")]
    training = [line for line in lines if "tokens_per_s" in line]
    return training[-1]["tokens_per_s"], training[-1]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--config", default="configs/ml1m-hstu.toml")
    parser.add_argument("--program", default="build/turbogr")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    for name, value in dict(width=50, layers=2, heads=1, head_dim=50, max_length=200, batch=128, negatives=128).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dropout", type=float, default=0.2)
    a = parser.parse_args()
    first, first_loss = our_rate(a, a.threads)
    seconds, tokens, baseline_loss = padded_epoch(a, a.threads)
    second, _ = our_rate(a, a.threads)
    ours = (first + second) / 2
    baseline = tokens / seconds
    print(f"tokens an epoch   {tokens:,}")
    print(f"padded PyTorch    {baseline:,.0f} tokens/s   last loss {baseline_loss:.3f}")
    print(f"turbogr           {ours:,.0f} tokens/s   mean loss {first_loss:.3f}   ({first:,.0f} and {second:,.0f})")
    print(f"ratio             {ours / baseline:.2f}x on {a.threads} threads" + (" and a GPU" if a.device == "cuda" else ""))


if __name__ == "__main__":
    main()
