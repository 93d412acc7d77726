"""Operators on arrays: against plain formulas in float64, and autograd against PyTorch's own."""

import gc
import multiprocessing
import threading
import time

import numpy as np
import pytest

import turbogr

LENGTHS = [5, 0, 9, 1]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64)
N = int(OFFSETS[-1])


def silu(x):
    return x / (1 + np.exp(-x))


def hstu(q, k, v, heads, alpha, norm, position):
    """The formula, sequence by sequence and head by head."""
    out = np.zeros_like(v)
    dq, dv = q.shape[1] // heads, v.shape[1] // heads
    for begin, end in zip(OFFSETS, OFFSETS[1:]):
        for h in range(heads):
            a, b = slice(h * dq, (h + 1) * dq), slice(h * dv, (h + 1) * dv)
            scores = alpha * q[begin:end, a] @ k[begin:end, a].T
            i, j = np.indices(scores.shape)
            scores = scores + position[(len(position) - 1) // 2 + j - i]
            out[begin:end, b] = np.where(j <= i, silu(scores) / norm, 0) @ v[begin:end, b]
    return out


@pytest.fixture
def case():
    random = np.random.default_rng(3)
    return {
        "q": random.normal(size=(N, 8)), "k": random.normal(size=(N, 8)), "v": random.normal(size=(N, 6)),
        "position": random.normal(size=19),
    }  # fmt: skip


def test_attention_is_the_formula(case):
    expected = hstu(case["q"], case["k"], case["v"], 2, 0.5, 7.0, case["position"])
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        arrays = {name: array.astype(dtype) for name, array in case.items()}
        position = arrays.pop("position")
        out = turbogr.ops.hstu_attention(
            **arrays, offsets=OFFSETS, heads=2, alpha=0.5, norm_length=7.0, position=position
        )
        assert out.dtype == dtype and out.shape == (N, 6)
        assert np.abs(out - expected).max() < tolerance


def test_slices_of_one_matrix_are_read_where_they_lie(case):
    together = np.concatenate([case["q"], case["k"], case["v"]], axis=1)
    out = turbogr.ops.hstu_attention(together[:, :8], together[:, 8:16], together[:, 16:], OFFSETS, heads=2)
    assert (out == turbogr.ops.hstu_attention(case["q"], case["k"], case["v"], OFFSETS, heads=2)).all()


def test_bits_do_not_depend_on_the_threads(case):
    arrays = [case[name].astype(np.float32) for name in "qkv"]
    results = []
    for threads in (1, 2, 0):
        turbogr.ops.set_threads(threads)
        results.append(turbogr.ops.hstu_attention(*arrays, OFFSETS, heads=2).tobytes())
    assert len(set(results)) == 1


def test_threads_take_turns(case):
    arrays = [case[name] for name in "qkv"]
    expected = turbogr.ops.hstu_attention(*arrays, OFFSETS, heads=2).tobytes()
    results = []

    def ask():
        for _ in range(20):
            results.append(turbogr.ops.hstu_attention(*arrays, OFFSETS, heads=2).tobytes())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 80


def _attention_in_child(arrays, pipe):
    pipe.send(turbogr.ops.hstu_attention(*arrays, OFFSETS, heads=2).tobytes())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_during_a_call_computes(case):
    """The child has the parent's locks as they were, and not the thread that would open them."""
    arrays = [case[name] for name in "qkv"]
    expected = turbogr.ops.hstu_attention(*arrays, OFFSETS, heads=2).tobytes()
    large = np.random.default_rng(1).normal(size=(4000, 8))
    ends = np.array([0, 4000])
    stop = threading.Event()
    calls = []

    def keep_busy():
        while not stop.is_set():
            turbogr.ops.hstu_attention(large, large, large, ends)
            calls.append(time.monotonic())

    thread = threading.Thread(target=keep_busy)
    thread.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(3):  # nearly all of the thread's time is in a call
            before = len(calls)
            while len(calls) == before:
                time.sleep(0.01)
            ours, theirs = context.Pipe()
            child = context.Process(target=_attention_in_child, args=(arrays, theirs))
            child.start()
            try:
                assert ours.poll(60), "the child hangs"
                assert ours.recv() == expected
            finally:
                child.kill()
                child.join()
    finally:
        stop.set()
        thread.join()


def test_arrays_outlive_what_they_came_from(run):
    items = turbogr.load(run).item_vectors()
    users = turbogr.load(run).user_vectors()
    stream = turbogr.Table({"x": np.arange(1000), "name": np.array([f"row {i}" for i in range(1000)])}).__arrow_c_stream__()
    out = turbogr.ops.hstu_attention(*(np.ones((3, 2)) for _ in range(3)), np.array([0, 3]))
    gc.collect()
    trash = [np.full(1000, -1) for _ in range(50)]  # where freed memory would be used again
    assert np.abs(np.linalg.norm(items, axis=1) - 1).max() < 1e-5 and np.abs(np.linalg.norm(users, axis=1) - 1).max() < 1e-5
    pa = pytest.importorskip("pyarrow")
    table = pa.RecordBatchReader._import_from_c_capsule(stream).read_all()
    assert table["x"].to_pylist() == list(range(1000)) and table["name"][999].as_py() == "row 999"
    assert np.allclose(out, out[0, 0] * np.array([[1, 1], [2, 2], [3, 3]]))
    assert len(trash) == 50


def test_sampled_softmax_is_the_formula():
    random = np.random.default_rng(5)
    query, items = random.normal(size=(6, 4)), random.normal(size=(9, 4))
    positive = np.array([0, 1, 2, 3, 4, 5], np.int32)
    negatives = random.integers(0, 9, size=(6, 5)).astype(np.int32)
    loss, saved = turbogr.ops.sampled_softmax(query, items, positive, negatives, temperature=0.1)
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (query, items)]
    scores = units[0] @ units[1].T / 0.1
    for i in range(6):
        others = [scores[i, r] for r in negatives[i] if r != positive[i]]
        total = np.log(np.exp(scores[i, positive[i]]) + np.exp(others).sum())
        assert loss[i] == pytest.approx(total - scores[i, positive[i]], rel=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": "text"}, "q is 'text'"),
        ({"k": None}, "k is None"),
        ({"v": np.zeros((3, 6))}, "v"),
        ({"q": np.zeros((N, 8), np.int64)}, "q has a number format"),
        ({"k": np.zeros((N, 8), np.float32)}, "k has another number format"),
        ({"q": np.zeros((N, 16))[:, ::2]}, "q has columns that are apart"),
        ({"v": np.zeros(N)}, "v has 1 dimensions"),
        ({"offsets": [0, 3, 2, N]}, "offsets fall from 3 to 2"),
        ({"offsets": [0, N + 1]}, "offsets end at 16"),
        ({"offsets": [1, N]}, "offsets begin at 1"),
        ({"offsets": np.array([0, N], np.int32)}, "offsets has another number format"),
        ({"heads": 3}, "heads"),
        ({"heads": 0}, "heads is 0"),
        ({"norm_length": 0.0}, "norm_length"),
        ({"position": np.zeros(4)}, "position"),
        ({"time": np.zeros(129)}, "times"),
    ],
)
def test_wrong_arguments_are_named(case, change, words):
    case.pop("position")
    with pytest.raises((turbogr.Error, TypeError, ValueError), match=words):
        turbogr.ops.hstu_attention(**{**case, "offsets": OFFSETS, **change})


def test_ids_past_the_items_are_refused():
    arrays = np.zeros((2, 4)), np.zeros((3, 4))
    with pytest.raises(turbogr.Error, match="negatives has the row 3 of items"):
        turbogr.ops.sampled_softmax(*arrays, np.array([0, 1], np.int32), np.array([3], np.int32))
    with pytest.raises(turbogr.Error, match="positive has the row -1"):
        turbogr.ops.sampled_softmax(*arrays, np.array([0, -1], np.int32), np.array([2], np.int32))


class TestTorch:
    """Functions with gradients; in float64 autograd's numbers are ours to the last digits."""

    torch = None

    @pytest.fixture(autouse=True)
    def _torch(self):
        type(self).torch = pytest.importorskip("torch")
        # Two libraries' threads that wait for each other crawl on a busy machine.
        self.torch.set_num_threads(1)
        turbogr.ops.set_threads(1)
        pytest.importorskip("turbogr.torch")

    def leaf(self, *shape):
        return self.torch.randn(*shape, dtype=self.torch.float64, requires_grad=True)

    @pytest.mark.parametrize("name", ["hstu_attention", "fuxi_attention"])
    def test_gradients_of_attention(self, name):
        self.torch.manual_seed(0)
        function = getattr(turbogr.torch, name)
        offsets = self.torch.tensor([0, 4, 4, 7])
        times = self.torch.tensor([0, 3, 9, 40, 5, 5, 700])

        def call(q, k, v, position, time):
            return function(
                q, k, v, offsets, heads=2, alpha=0.7, norm_length=5.0, position=position, time=time,
                key_times=times, query_times=times,
            )  # fmt: skip

        inputs = (self.leaf(7, 4), self.leaf(7, 4), self.leaf(7, 6), self.leaf(9), self.leaf(129))
        assert self.torch.autograd.gradcheck(call, inputs, eps=1e-6, atol=1e-7)

    def test_gradients_of_the_loss(self):
        self.torch.manual_seed(1)
        positive, negatives = self.torch.arange(5), self.torch.randint(0, 8, (5, 4))
        call = lambda q, e: turbogr.torch.sampled_softmax(q, e, positive, negatives, temperature=0.3)
        assert self.torch.autograd.gradcheck(call, (self.leaf(5, 4), self.leaf(8, 4)), eps=1e-6, atol=1e-6)

    def plain_block(self, block, x, offsets):
        """The block in torch's own operators, sequence by sequence."""
        torch, functional = self.torch, self.torch.nn.functional
        normed = functional.layer_norm(x, x.shape[-1:], eps=block.eps)
        projected = functional.silu(normed @ block.projection)
        u, v, q, k = projected.split([block.value, block.value, block.query, block.query], dim=-1)
        parts = []
        for begin, end in zip(offsets.tolist(), offsets.tolist()[1:]):
            n = end - begin
            cut = lambda t: t[begin:end].reshape(n, block.heads, -1).transpose(0, 1)
            gap = torch.arange(n)[None, :] - torch.arange(n)[:, None]
            scores = block.alpha * cut(q) @ cut(k).transpose(1, 2) + block.position[(len(block.position) - 1) // 2 + gap]
            weights = functional.silu(scores) / block.norm_length * (gap <= 0)
            parts.append((weights @ cut(v)).transpose(0, 1).reshape(n, -1))
        attended = torch.cat(parts)
        return x + block.output(u * functional.layer_norm(attended, attended.shape[-1:], eps=block.eps))

    def test_block_is_torch_in_double(self):
        torch = self.torch
        torch.manual_seed(2)
        block = turbogr.torch.HSTUBlock(8, heads=2, max_length=12).double()
        offsets = torch.tensor([0, 5, 12])
        x, weights = self.leaf(12, 8), torch.randn(12, 8, dtype=torch.float64)
        results = []
        for forward in (block, lambda x, offsets: self.plain_block(block, x, offsets)):
            block.zero_grad()
            x.grad = None
            y = forward(x, offsets)
            (y * weights).sum().backward()
            results.append([y.detach(), x.grad.clone(), *(p.grad.clone() for p in block.parameters())])
        assert len(results[0]) == 6
        for ours, theirs in zip(*results):
            assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)

    def test_block_learns(self):
        torch = self.torch
        torch.manual_seed(3)
        block = turbogr.torch.HSTUBlock(16, heads=2, max_length=10, time_bias=True, dropout=0.1)
        optimiser = torch.optim.Adam(block.parameters(), lr=1e-2)
        x, target = torch.randn(10, 16), torch.randn(10, 16)
        losses = []
        for _ in range(60):
            loss = (block(x, torch.tensor([0, 6, 10]), torch.arange(10)) - target).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss))
        assert losses[-1] < 0.7 * losses[0]

    def test_bfloat16(self, case):
        torch = self.torch
        q, k, v = (torch.tensor(case[name]) for name in "qkv")
        exact = turbogr.torch.hstu_attention(q, k, v, torch.tensor(OFFSETS), heads=2)
        half = turbogr.torch.hstu_attention(
            q.bfloat16(), k.bfloat16(), v.bfloat16(), torch.tensor(OFFSETS), heads=2
        )
        assert half.dtype == torch.bfloat16
        assert (half.double() - exact).abs().max() < 0.05 * exact.abs().max()

    def test_views_that_are_negated_only_in_name(self, case):
        q, k, v = (self.torch.tensor(case[name]) for name in "qkv")
        offsets = self.torch.tensor(OFFSETS)
        view = self.torch._neg_view(q)
        assert view.is_neg() and (view == -q).all()
        wanted = turbogr.ops.hstu_attention(-q, k, v, offsets, heads=2)
        assert self.torch.equal(turbogr.ops.hstu_attention(view, k, v, offsets, heads=2), wanted)

    @pytest.mark.parametrize("name", ["q", "position"])
    def test_tensors_that_are_no_plain_memory_are_named(self, case, name):
        torch = self.torch
        arguments = {key: torch.tensor(case[key]) for key in "qkv"}
        arguments["position"] = torch.zeros(2 * max(LENGTHS) - 1, dtype=torch.float64)
        offsets = torch.tensor(OFFSETS)
        turbogr.ops.hstu_attention(**arguments, offsets=offsets, heads=2)
        arguments[name] = arguments[name].to_sparse()
        with pytest.raises(TypeError, match=f"{name} has the layout"):
            turbogr.ops.hstu_attention(**arguments, offsets=offsets, heads=2)
        arguments[name] = arguments[name].to_dense().to("meta")
        with pytest.raises(ValueError, match=f"{name} is on meta"):
            turbogr.ops.hstu_attention(**arguments, offsets=offsets, heads=2)
