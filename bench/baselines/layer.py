#!/usr/bin/env python3
"""One HSTU layer in PyTorch, forward and backward, padded to the longest sequence: eager and torch.compile.

    python3 bench/baselines/layer.py --lengths lengths.txt --heads 8 --head-dim 128 --width 1024 --device cuda

The layer that `turbogr bench layer` times, which runs this script and prints both. Weights, activations and gradients
are in --dtype, the bias tables in f32. Prints one JSON object as its last line: {"modes": {"eager": {"ms": ...}, "compile": {...}}, ...},
or {"unavailable": "why"} where there is no PyTorch or PyTorch has no such device. Each mode's output and gradients are
compared with a float32 run of the sequences one by one before it is timed.
"""
import argparse
import json
import statistics
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(json.dumps({"unavailable": f"no PyTorch: {error}"}))
    raise SystemExit(0)

BUCKETS = 129


class Layer(torch.nn.Module):
    """Step by step: norm, projection with SiLU, SiLU attention, gated norm, output projection and residual."""

    def __init__(self, width, heads, dq, dv, max_length, norm_length, bias, concat):
        super().__init__()
        self.heads, self.dq, self.dv = heads, dq, dv
        self.max_length, self.norm_length, self.concat = max_length, norm_length, concat
        self.projection = torch.nn.Parameter(torch.randn(width, 2 * heads * (dq + dv)) * 0.02)
        mixed = heads * dv * (3 if concat else 1)
        self.output = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(mixed, width)))
        self.output_bias = torch.nn.Parameter(torch.zeros(width))
        self.position = torch.nn.Parameter(torch.randn(2 * max_length - 1) * 0.02) if bias else None
        self.time = torch.nn.Parameter(torch.randn(BUCKETS) * 0.02) if bias else None

    def score_bias(self, length, key_times, query_times):
        """[B, 1, L, L]: w_pos[S-1+j-i] + w_time[bucket(tq_i - tk_j)]."""
        # Row i of the position part is a window of the table; the windows overlap, so nothing is gathered.
        windows = self.position[self.max_length - length:self.max_length + length - 1].unfold(0, length, 1).flip(0)
        gap = (query_times[:, :, None] - key_times[:, None, :]).abs().clamp(min=1)
        bucket = (gap.float().log() / 0.301).long().clamp(0, BUCKETS - 1)
        gathered = torch.index_select(self.time, 0, bucket.view(-1)).view(bucket.shape)
        return (windows + gathered)[:, None].to(self.projection.dtype)

    def forward(self, x, causal, key_times, query_times):
        batch, length, width = x.shape
        projected = F.silu(F.layer_norm(x, (width,), eps=1e-6) @ self.projection)
        inner, query = self.heads * self.dv, self.heads * self.dq
        u, v, q, k = projected.split([inner, inner, query, query], dim=-1)
        q, k = (t.view(batch, length, self.heads, self.dq).transpose(1, 2) for t in (q, k))
        v = v.view(batch, length, self.heads, self.dv).transpose(1, 2)
        scores = q @ k.transpose(-1, -2)
        if self.position is not None:
            scores = scores + self.score_bias(length, key_times, query_times)
        # Padding comes after a sequence's tokens, so the causal mask hides it from all of them.
        weights = F.silu(scores) / self.norm_length * causal[:length, :length]
        attended = (weights @ v).transpose(1, 2).reshape(batch, length, inner)
        normed = F.layer_norm(attended, (inner,), eps=1e-6)
        mixed = torch.cat([u, normed, u * normed], -1) if self.concat else u * normed
        return x + mixed @ self.output + self.output_bias


def relative_error(got, wanted):
    got, wanted = got.float(), wanted.float()
    return float((got - wanted).norm() / wanted.norm().clamp(min=1e-30))


class Baseline:
    def __init__(self, a, lengths):
        self.device, self.lengths = torch.device(a.device), lengths
        self.dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[a.dtype]
        self.longest, batch = max(lengths), len(lengths)
        self.layer = Layer(a.width, a.heads, a.head_dim, a.head_dim, self.longest, self.longest + 11.0,
                           a.bias == "both", a.concat).to(self.device, self.dtype)
        # Millions of pairs add to one entry of a table: bf16 could not hold such sums.
        for table in (self.layer.position, self.layer.time):
            if table is not None:
                table.data = table.data.float()
        self.causal = torch.ones(self.longest, self.longest, dtype=self.dtype, device=self.device).tril()
        gaps = torch.exp(torch.rand(batch, self.longest + 1) * 12.06).long() * (torch.rand(batch, self.longest + 1) > 0.4)
        times = 1_700_000_000 + gaps.cumsum(1)
        self.key_times, self.query_times = times[:, :-1].to(self.device), times[:, 1:].to(self.device)
        self.valid = (torch.arange(self.longest)[None] < torch.tensor(lengths)[:, None]).to(self.device)
        rows = batch * self.longest * a.width * self.dtype.itemsize
        self.sets = [self.rows(a.width) for _ in range(min(4, max(2, (256 << 20) // (2 * rows) + 1)))]

    def rows(self, width):
        def draw():
            values = torch.randn(len(self.lengths), self.longest, width, device=self.device, dtype=self.dtype)
            return values * self.valid[..., None]
        return draw().requires_grad_(), draw()

    def step(self, run, index):
        x, dy = self.sets[index % len(self.sets)]
        x.grad = None
        self.layer.zero_grad(set_to_none=True)
        y = run(x, self.causal, self.key_times, self.query_times)
        y.backward(dy)
        return y

    def in_float32(self):
        """Output, input gradient and weight gradients of set 0, one sequence after the other."""
        x, dy = self.sets[0]
        original = {name: p.data for name, p in self.layer.named_parameters()}
        for p in self.layer.parameters():
            p.grad, p.data = None, p.data.float()
        causal = self.causal.float()
        outputs, gradients = [], []
        for b, n in enumerate(self.lengths):
            alone = x[b:b + 1, :n].detach().float().requires_grad_()
            y = self.layer(alone, causal, self.key_times[b:b + 1, :n], self.query_times[b:b + 1, :n])
            y.backward(dy[b:b + 1, :n].float())
            outputs.append(y.detach()[0])
            gradients.append(alone.grad[0])
        weights = {name: p.grad.clone() for name, p in self.layer.named_parameters()}
        for name, p in self.layer.named_parameters():
            p.grad, p.data = None, original[name]
        return torch.cat(outputs), torch.cat(gradients), weights

    def errors(self, run, wanted):
        y = self.step(run, 0)
        output, gradient, weights = wanted
        return {"y": relative_error(y.detach()[self.valid], output),
                "dx": relative_error(self.sets[0][0].grad[self.valid], gradient),
                **{"d" + name: relative_error(p.grad, weights[name]) for name, p in self.layer.named_parameters()}}

    def milliseconds(self, run, repeats):
        cuda = self.device.type == "cuda"
        marks = []
        for index in range(3):
            self.step(run, index)
        for index in range(repeats):
            if cuda:
                pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                pair[0].record()
                self.step(run, index)
                pair[1].record()
                marks.append(pair)
            else:
                begin = time.perf_counter()
                self.step(run, index)
                marks.append((time.perf_counter() - begin) * 1e3)
        if cuda:
            torch.cuda.synchronize()
            marks = [begin.elapsed_time(end) for begin, end in marks]
        return statistics.median(marks)

    def measure(self, run, wanted, repeats, allowed):
        """One mode; a failure such as too little memory is told, not fatal for the other."""
        try:
            errors = self.errors(run, wanted)
            worst = max(errors, key=errors.get)
            if not all(error <= allowed for error in errors.values()):
                return {"error": f"wrong answer: relative errors {errors} where {allowed} is allowed; not timed"}
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            ms = self.milliseconds(run, repeats)
            peak = torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0
            return {"ms": ms, "tokens_per_s": sum(self.lengths) / ms * 1e3, "relative_error": errors[worst],
                    "worst": worst, "peak_bytes": peak}
        except Exception as error:  # noqa: BLE001
            return {"error": f"{type(error).__name__}: {str(error)[:2000]}"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", required=True, help="a file with one length a line")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--bias", choices=["none", "both"], default="none")
    parser.add_argument("--concat", action="store_true")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--threads", type=int, default=0, help="on a CPU; 0: PyTorch's choice")
    parser.add_argument("--modes", default="eager,compile")
    return parser.parse_args()


def main():
    a = arguments()
    if a.device == "cuda" and not torch.cuda.is_available():
        print(json.dumps({"unavailable": f"PyTorch {torch.__version__} sees no GPU"}))
        return
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    with open(a.lengths) as file:
        lengths = [int(line) for line in file.read().split()]
    baseline = Baseline(a, lengths)
    wanted = baseline.in_float32()
    if a.device == "cuda":
        torch.cuda.empty_cache()
    runs = {"eager": lambda: baseline.layer, "compile": lambda: torch.compile(baseline.layer, dynamic=False)}
    modes = {}
    for mode in a.modes.split(","):
        modes[mode] = baseline.measure(runs[mode](), wanted, a.repeats, 5e-2 if a.dtype == "bf16" else 1e-3)
        baseline.layer.zero_grad(set_to_none=True)
        for x, _ in baseline.sets:
            x.grad = None
        if a.device == "cuda":
            torch.cuda.empty_cache()
    print(json.dumps({"torch": torch.__version__, "device": a.device, "dtype": a.dtype, "tokens": sum(lengths),
                      "padded_tokens": len(lengths) * max(lengths), "modes": modes}))


if __name__ == "__main__":
    main()
