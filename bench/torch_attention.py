"""HSTU attention of a GPU called through `turbogr.torch`, beside the C++ benchmark of the same shape.

    python bench/torch_attention.py LENGTHS HEADS HEAD_DIM [ATTENTION_BENCH]

LENGTHS is a file of sequence lengths, a line each. Calls are those autograd makes: the plan of the batch and the zeroing of gradients of
tables are in them, as every call makes its own. Times are medians between CUDA events around twenty calls, queued as those of a model are,
and around one call on an idle GPU, which then waits for Python. ATTENTION_BENCH is the program `attention_bench` of a CUDA build; its
figures, a call at a time without the plan, are then printed beside.
"""
import re
import statistics
import subprocess
import sys

import torch

import turbogr.torch


def median_ms(call, times, queued):
    """A call's share of `queued` ones between two events, `times` times after five calls that warm up."""
    for _ in range(5):
        call()
    taken = []
    for _ in range(times):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(queued):
            call()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / queued)
    return statistics.median(taken)


def ours(path, heads, width, bias):
    """{"forward": (queued, alone), "backward": (queued, alone)} in ms."""
    lengths = [int(line) for line in open(path) if line.strip()]
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], device="cuda")
    tokens, longest = int(offsets[-1]), max(lengths)
    torch.manual_seed(0)
    together = torch.randn(tokens, 4 * heads * width, device="cuda").bfloat16()
    _, v, q, k = (part.detach().requires_grad_() for part in together.chunk(4, dim=1))
    dout = torch.randn(tokens, heads * width, device="cuda").bfloat16()
    options = {"heads": heads, "norm_length": float(longest), "alpha": width**-0.5}
    if bias == "both":
        times = torch.cat([torch.randint(0, 1 << 28, (n,)).sort().values for n in lengths]).cuda()
        options["position"] = (0.3 * torch.randn(2 * longest - 1, device="cuda")).requires_grad_()
        options["time"] = (0.3 * torch.randn(129, device="cuda")).requires_grad_()
        options["key_times"] = options["query_times"] = times
    out = turbogr.torch.hstu_attention(q, k, v, offsets, **options)
    wanted = [q, k, v, *(options[name] for name in ("position", "time") if name in options)]
    calls = {
        "forward": lambda: turbogr.torch.hstu_attention(q, k, v, offsets, **options),
        "backward": lambda: torch.autograd.grad(out, wanted, dout, retain_graph=True),
    }
    return {name: (median_ms(call, 11, 20), median_ms(call, 31, 1)) for name, call in calls.items()}


def theirs(program, path, heads, width, bias):
    """{"plan": ms, "forward": ms, "backward": ms}."""
    command = [program, "time", "--lengths", path, "--heads", str(heads), "--head-dim", str(width), "--bias", bias]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: float(ms) for name, ms in re.findall(r"(plan|forward|backward) ([0-9.]+) ms", text)}


def main(path, heads, width, program=None):
    """A line each without and with position and time biases, forward and backward."""
    for bias in ("none", "both"):
        found = ours(path, heads, width, bias)
        wanted = theirs(program, path, heads, width, bias) if program else {}
        for name, (queued, alone) in found.items():
            line = f"bias {bias}  {name:8}  turbogr.torch {queued:.4f} ms, a call alone {alone:.4f}"
            if wanted:
                line += f"  C++ {wanted[name]:.4f} + plan {wanted['plan']:.4f}  speed {wanted[name] / queued:.1%}"
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:5])
