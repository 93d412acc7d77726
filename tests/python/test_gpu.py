"""Operators on a GPU's tensors, against PyTorch in double and against the same operators on the CPU; a run there."""

import numpy as np
import pytest

import turbogr

torch = pytest.importorskip("torch")
pytest.importorskip("turbogr.torch")
if not turbogr._turbogr.with_cuda:
    pytest.skip("this build of turbogr has no CUDA, so torch's tensors stay on the CPU", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip("torch finds no GPU here", allow_module_level=True)

LENGTHS = [70, 0, 1, 300, 33, 129]
OFFSETS = torch.tensor([0, *np.cumsum(LENGTHS).tolist()])
N = int(OFFSETS[-1])
HEADS, WIDTH = 2, 64


def plain(q, k, v, position):
    """The formula in torch's own operators, in the format of its arguments."""
    parts = []
    for begin, end in zip(OFFSETS.tolist(), OFFSETS.tolist()[1:]):
        n = end - begin
        cut = lambda t: t[begin:end].unflatten(1, (HEADS, -1)).transpose(0, 1)
        gap = torch.arange(n, device=q.device)[None, :] - torch.arange(n, device=q.device)[:, None]
        scores = 0.3 * (cut(q) @ cut(k).transpose(1, 2)) + position[(len(position) - 1) // 2 + gap].to(q.dtype)
        weights = torch.nn.functional.silu(scores) / 50 * (gap <= 0)
        parts.append((weights @ cut(v)).transpose(0, 1).flatten(1))
    return torch.cat(parts)


def leaves(dtype, seed=0):
    """q, k, v and a table of positions with the same values in every format."""
    torch.manual_seed(seed)
    made = [torch.randn(N, HEADS * WIDTH, dtype=torch.float64) for _ in range(3)]
    made.append(0.3 * torch.randn(2 * 300 - 1, dtype=torch.float64))
    sums = torch.float64 if dtype == torch.float64 else torch.float32
    rounded = [x.bfloat16().to("cuda", sums if i == 3 else dtype) for i, x in enumerate(made)]
    return [x.requires_grad_() for x in rounded]


def results_of(function, inputs, weights):
    """The output and the gradients of the inputs, in double."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    (out * weights.to(out.dtype)).sum().backward()
    return [t.detach().double() for t in (out, *(x.grad for x in inputs))]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_attention_and_its_gradients_are_the_formula(dtype):
    weights = torch.randn(N, HEADS * WIDTH, dtype=torch.float64, device="cuda").bfloat16()
    inputs = leaves(dtype)
    exact = results_of(plain, [x.double() for x in inputs], weights)
    same_format = results_of(plain, inputs, weights)
    ours = results_of(
        lambda q, k, v, position: turbogr.torch.hstu_attention(
            q, k, v, OFFSETS.cuda(), heads=HEADS, alpha=0.3, norm_length=50.0, position=position
        ),
        inputs, weights,
    )  # fmt: skip
    for name, found, wanted, usual in zip(("out", "dq", "dk", "dv", "dposition"), ours, exact, same_format):
        error, bound = (found - wanted).abs().max(), (usual - wanted).abs().max()
        floor = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 4e-3}[dtype] * wanted.abs().max()
        assert error <= 2 * bound + floor, f"{name}: {error:.2e}, torch in the same format {bound:.2e}"


@pytest.mark.parametrize("name", ["hstu_attention", "fuxi_attention"])
@pytest.mark.parametrize("where", ["offsets on the GPU", "offsets on the CPU"])
def test_both_biases_and_a_window_are_those_of_the_cpu(name, where):
    torch.manual_seed(1)
    times = torch.cat([torch.randint(0, 1 << 30, (n,)).sort().values for n in LENGTHS])
    arrays = [torch.randn(N, HEADS * WIDTH, dtype=torch.float64) for _ in range(3)]
    tables = {"position": torch.randn(599, dtype=torch.float64), "time": torch.randn(129, dtype=torch.float64)}
    results = []
    for device in ("cpu", "cuda"):
        offsets = OFFSETS.to(device if where == "offsets on the GPU" else "cpu")
        moved = {key: table.to(device) for key, table in tables.items()}
        results.append(
            getattr(turbogr.ops, name)(
                *(x.to(device) for x in arrays), offsets, heads=HEADS, norm_length=50.0, window=100,
                key_times=times.to(device), query_times=times.to(device), **moved,
            ).cpu()
        )  # fmt: skip
    assert torch.allclose(*results, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_gradients_of_the_block_are_torchs_in_double(dtype):
    torch.manual_seed(2)
    width = HEADS * WIDTH
    block = turbogr.torch.HSTUBlock(width, heads=HEADS, max_length=300, alpha=0.3, norm_length=50.0).cuda()
    for parameter in block.parameters():
        parameter.data = parameter.data.bfloat16().float() * (1 if parameter.ndim > 1 else 10)
    x = torch.randn(N, width).bfloat16().cuda()
    weights = torch.randn(N, width).bfloat16().cuda()

    def plain_block(block, x):
        functional = torch.nn.functional
        normed = functional.layer_norm(x, x.shape[-1:], eps=block.eps)
        u, v, q, k = functional.silu(normed @ block.projection).chunk(4, dim=-1)
        attended = plain(q, k, v, block.position)
        return x + block.output(u * functional.layer_norm(attended, attended.shape[-1:], eps=block.eps))

    def results(to, ours):
        copied = turbogr.torch.HSTUBlock(width, heads=HEADS, max_length=300, alpha=0.3, norm_length=50.0).cuda()
        copied.load_state_dict(block.state_dict())
        copied = copied.to(to)
        leaf = x.to(to).detach().requires_grad_()
        out = copied(leaf, OFFSETS.cuda()) if ours else plain_block(copied, leaf)
        (out * weights.to(to)).sum().backward()
        return [t.detach().double() for t in (out, leaf.grad, *(p.grad for p in copied.parameters()))]

    exact, usual, ours = results(torch.float64, False), results(dtype, False), results(dtype, True)
    assert len(exact) == 6
    floor = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    for i, (found, wanted, same) in enumerate(zip(ours, exact, usual)):
        error, bound = (found - wanted).abs().max(), (same - wanted).abs().max()
        assert error <= 2 * bound + floor * wanted.abs().max(), f"result {i}: {error:.2e}, torch {bound:.2e}"


def test_the_loss_and_its_gradients_are_those_of_the_cpu():
    torch.manual_seed(3)
    query, items = torch.randn(50, 32, dtype=torch.float64), torch.randn(90, 32, dtype=torch.float64)
    positive = torch.randint(0, 90, (50,))
    for negatives in (torch.randint(0, 90, (20,)), torch.randint(0, 90, (50, 20))):
        results = []
        for device in ("cpu", "cuda"):
            leaf = [x.to(device).detach().requires_grad_() for x in (query, items)]
            loss = turbogr.torch.sampled_softmax(*leaf, positive.to(device), negatives.to(device), temperature=0.2)
            loss.mean().backward()
            results.append([loss.detach().cpu(), *(x.grad.cpu() for x in leaf)])
        for ours, wanted in zip(*results):
            assert torch.allclose(ours, wanted, rtol=1e-9, atol=1e-12)


class Foreign:
    """An array of some other library."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_arrays_of_other_libraries_are_read_where_they_lie():
    inputs = [x.detach() for x in leaves(torch.float32)[:3]]
    ours = turbogr.ops.hstu_attention(*inputs, OFFSETS, heads=HEADS)
    theirs = turbogr.ops.hstu_attention(*(Foreign(x) for x in inputs), OFFSETS, heads=HEADS)
    assert theirs.is_cuda and torch.equal(ours, theirs)


def test_work_keeps_the_order_of_the_current_stream():
    inputs = [x.detach() for x in leaves(torch.float32)[:3]]
    expected = turbogr.ops.hstu_attention(*inputs, OFFSETS, heads=HEADS) + 1
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    large = torch.randn(4096, 4096, device="cuda")
    for _ in range(3):
        with torch.cuda.stream(stream):
            empty = [torch.zeros_like(x) for x in inputs]
            for _ in range(20):
                large = torch.nn.functional.normalize(large @ large)  # keeps the stream busy
            for to, value in zip(empty, inputs):
                to.copy_(value)
            out = turbogr.ops.hstu_attention(*empty, OFFSETS, heads=HEADS)
            out += 1
        stream.synchronize()
        assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": torch.zeros(N, HEADS * WIDTH)}, "k is on cpu"),
        ({"offsets": [0, 5]}, "offsets do not rise from 0"),
        ({"offsets": torch.tensor([0, 9, 5, N])}, "offsets do not rise from 0"),
        ({"offsets": torch.tensor([0, N], dtype=torch.int32)}, "offsets"),
        ({"position": np.zeros(9, np.float32)}, "position is on cpu"),
        ({"max_length": -1}, "max_length"),
    ],
)
def test_wrong_arguments_are_named(change, words):
    q, k, v = (x.detach() for x in leaves(torch.float32)[:3])
    with pytest.raises((turbogr.Error, TypeError, ValueError), match=words):
        turbogr.ops.hstu_attention(**{"q": q, "k": k, "v": v, "offsets": OFFSETS, "heads": HEADS, **change})


def test_a_run_on_the_gpu_learns(store, small, tmp_path):
    settings = {**small, "train": {**small["train"], "device": "cuda"}}
    run = turbogr.train(settings, store, run={"dir": tmp_path / "run"}, progress=False)
    model = turbogr.load(run)
    figures, popular = model.evaluate(at=10), model.evaluate(at=10, popularity=True)
    assert figures["hr@10"] > popular["hr@10"]
