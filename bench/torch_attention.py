"""HSTU attention of a GPU called through `turbogr.torch`, beside the C++ benchmark of the same shape.

    python bench/torch_attention.py LENGTHS HEADS HEAD_DIM [ATTENTION_BENCH]

LENGTHS is a file of sequence lengths, a line each. Times are medians between CUDA events, over calls as autograd makes them: the
plan of the batch and the zeroing of gradients of tables are in them, as every call makes its own. ATTENTION_BENCH is the program
`attention_bench` of a CUDA build; its figures are then printed beside.
"""
import statistics
import subprocess
import sys

import torch

import turbogr.torch


def median_ms(call, times):
    """Of `times` calls after five that warm up, each between two events."""
    for _ in range(5):
        call()
    taken = []
    for _ in range(times):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return statistics.median(taken)


def main(path, heads, width):
    """A line each without and with position and time biases."""
    lengths = [int(line) for line in open(path) if line.strip()]
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], device="cuda")
    tokens, longest = int(offsets[-1]), max(lengths)
    torch.manual_seed(0)
    together = torch.randn(tokens, 4 * heads * width, device="cuda").bfloat16()
    _, v, q, k = (part.detach().requires_grad_() for part in together.chunk(4, dim=1))
    dout = torch.randn(tokens, heads * width, device="cuda").bfloat16()
    times = torch.cat([torch.randint(0, 1 << 28, (n,)).sort().values for n in lengths]).cuda()
    for bias in ("none", "both"):
        options = {"heads": heads, "norm_length": float(longest), "alpha": width**-0.5}
        if bias == "both":
            options["position"] = (0.3 * torch.randn(2 * longest - 1, device="cuda")).requires_grad_()
            options["time"] = (0.3 * torch.randn(129, device="cuda")).requires_grad_()
            options["key_times"] = options["query_times"] = times
        out = turbogr.torch.hstu_attention(q, k, v, offsets, **options)
        wanted = [q, k, v, *(options[name] for name in ("position", "time") if name in options)]
        forward = median_ms(lambda: turbogr.torch.hstu_attention(q, k, v, offsets, **options), 31)
        backward = median_ms(lambda: torch.autograd.grad(out, wanted, dout, retain_graph=True), 21)
        print(f"turbogr.torch  bias {bias}  {tokens} tokens  forward {forward:.3f} ms  backward {backward:.3f} ms", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    for bias in ("none", "both") if len(sys.argv) > 4 else ():
        command = [sys.argv[4], "time", "--lengths", sys.argv[1], "--heads", sys.argv[2], "--head-dim", sys.argv[3], "--bias", bias]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout, flush=True)
