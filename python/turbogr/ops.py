"""turbogr's operators on arrays of NumPy, PyTorch, anything that speaks DLPack: in the CPU's memory and, where this build
has CUDA, on a GPU (PyTorch's tensors, and what PyTorch can take by DLPack).

B sequences lie end to end: sequence b is rows ``offsets[b]`` up to ``offsets[b + 1]``, so a batch has no padding. Arrays
are read where they lie, in float32, float64 or (PyTorch) bfloat16. Outputs are of the inputs' library. For
gradients inside PyTorch see :mod:`turbogr.torch`.

On a GPU calls queue work in the order of PyTorch's current stream and return. What lies there is not looked at: offsets
and row numbers must be right. Offsets in the CPU's memory are checked and then moved, and tell the longest sequence, which
the fastest kernels want to know where there are time biases or masks and no position table; so does ``max_length``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from turbogr import _turbogr
from turbogr import _arguments as arguments

__all__ = [
    "fuxi_attention",
    "fuxi_attention_backward",
    "hstu_attention",
    "hstu_attention_backward",
    "sampled_softmax",
    "sampled_softmax_backward",
    "set_threads",
]

TIME_BUCKETS = 129  # of a time table


def set_threads(threads: int) -> None:
    """How many threads operators use from now on; 0: one a core. The bits do not depend on it."""
    _turbogr.set_threads(arguments.integer_of("threads", threads, 0, 4096))


def _torch_of(array: Any) -> Any:
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def _array(name: str, value: Any, dtype: str | None = None) -> Any:
    """What the engine can read: detached from autograd; plain lists of numbers become arrays of `dtype`."""
    torch = _torch_of(value)
    if torch is not None:
        if not (value.is_cpu or (value.is_cuda and _turbogr.with_cuda)):
            raise ValueError(f"{name} is on {value.device}; this build computes on the CPU: give {name}.cpu()")
        if value.layout != torch.strided:
            raise TypeError(f"{name} has the layout {value.layout}; wanted: a dense tensor: give {name}.to_dense()")
        for kind in ("nested", "quantized"):
            if getattr(value, f"is_{kind}", False):
                raise TypeError(f"{name} is {kind}; wanted: a plain dense tensor")
        # A view that PyTorch only thinks of as negated has the opposite signs in memory.
        return value.detach().resolve_neg()
    if dtype is not None and isinstance(value, (list, tuple)):
        try:
            array = np.asarray(value)
            if array.size > 0 and array.dtype.kind not in "iu":  # which NumPy would cut down to whole numbers
                raise TypeError(f"the numbers are {array.dtype}")
            return np.asarray(value, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{name} is {arguments.shown(value)}; wanted: an array of {dtype}") from error
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiu" or not value.dtype.isnative:
            raise TypeError(f"{name} has the type {value.dtype}; wanted: numbers in the machine's own order")
        return value
    if not hasattr(type(value), "__dlpack__"):
        raise TypeError(f"{name} is {arguments.shown(value)}; wanted: an array (NumPy, PyTorch, DLPack)")
    try:
        if _turbogr.with_cuda and value.__dlpack_device__()[0] == 2:  # kDLCUDA
            import torch

            return torch.from_dlpack(value)
        return np.from_dlpack(value)
    except Exception as error:
        raise TypeError(f"{name} is {arguments.shown(value)}, which could not be read: {error}") from error


def _optional(name: str, value: Any, dtype: str | None = None) -> Any:
    return None if value is None else _array(name, value, dtype)


def _matrix(name: str, value: Any) -> Any:
    array = _array(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name} has {array.ndim} dimensions; wanted: 2, [tokens, width]")
    return array


def _empty(like: Any, shape: tuple[int, ...], *, sums: bool = False, zero: bool = False) -> Any:
    """An array of the library of `like`, where it lies; `sums` are kept in float32 where the values are in bfloat16."""
    torch = _torch_of(like)
    if torch is None:
        return (np.zeros if zero else np.empty)(shape, like.dtype)
    dtype = torch.float32 if sums and like.dtype == torch.bfloat16 else like.dtype
    return (torch.zeros if zero else torch.empty)(shape, dtype=dtype, device=like.device)


def _same_place(like: Any, **arrays: Any) -> None:
    """All arrays of a call lie where its first one does."""
    wanted = _device_of(like)
    for name, array in arrays.items():
        if array is not None and _device_of(array) != wanted:
            found, wanted = _device_of(array) or "cpu", wanted or "cpu"
            raise ValueError(f"{name} is on {found} and the other arrays are on {wanted}; move it there")


def _device_of(array: Any) -> Any:
    """PyTorch's name of the GPU an array lies on; None: the CPU's memory."""
    return array.device if _torch_of(array) is not None and array.is_cuda else None


def _lent(array: Any) -> Any:
    """For the engine to read or write. PyTorch's own `__dlpack__` takes ten times as long, and looks at streams."""
    torch = _torch_of(array)
    return array if torch is None else torch.utils.dlpack.to_dlpack(array)


def _call(function: Any, like: Any, *parts: Any) -> None:
    """Calls the engine; on a GPU after what PyTorch's current stream has to do, and before what it gets to do."""
    lent = [_lent(part) for part in parts]
    device = _device_of(like)
    if device is None:
        function(*lent, 0)
        return
    cuda = _torch_of(like).cuda
    with cuda.device(device):
        function(*lent, cuda.current_stream(device).cuda_stream)


def _offsets(q: Any, value: Any) -> tuple[Any, int]:
    """Offsets where q lies, and the longest sequence if they could be looked at."""
    offsets = _array("offsets", value, "int64")
    torch = _torch_of(q)
    if torch is None or q.device.type == "cpu" or (_torch_of(offsets) is not None and offsets.device == q.device):
        return offsets, 0
    on_host = torch.as_tensor(offsets)
    if on_host.device.type != "cpu" or on_host.dtype != torch.int64 or on_host.ndim != 1 or len(on_host) == 0:
        raise ValueError(
            f"offsets is {arguments.shown(value)}; wanted: int64 [sequences + 1], on {q.device} or in the CPU's memory"
        )
    lengths = on_host.diff()
    if on_host[0] != 0 or on_host[-1] != q.shape[0] or (lengths < 0).any():
        raise ValueError(f"offsets do not rise from 0 to {q.shape[0]}, the rows of q")
    return on_host.to(q.device), int(lengths.max()) if len(lengths) > 0 else 0


def _options(
    fuxi: bool, heads: Any, alpha: Any, norm_length: Any, window: Any, position: Any, time: Any,
    key_times: Any, query_times: Any, num_prefix: Any, num_targets: Any, max_length: Any,
) -> Any:  # fmt: skip
    options = _turbogr.Attention()
    options.fuxi = fuxi
    options.heads = arguments.integer_of("heads", heads, 1, 1 << 16)
    options.alpha = arguments.number_of("alpha", alpha)
    options.norm_length = arguments.number_of("norm_length", norm_length)
    options.window = arguments.integer_of("window", window, 0)
    options.max_length = arguments.integer_of("max_length", max_length, 0)
    options.position = _lent(_optional("position", position))
    options.time = _lent(_optional("time", time))
    options.key_times = _lent(_optional("key_times", key_times, "int64"))
    options.query_times = _lent(_optional("query_times", query_times, "int64"))
    options.num_prefix = _lent(_optional("num_prefix", num_prefix, "int64"))
    options.num_targets = _lent(_optional("num_targets", num_targets, "int64"))
    return options


_ARRAYS = ("position", "time", "key_times", "query_times", "num_prefix", "num_targets")


def _attention(fuxi: bool, q: Any, k: Any, v: Any, offsets: Any, options: dict[str, Any]) -> Any:
    chosen = _options(fuxi, **options)
    q, k, v = _matrix("q", q), _matrix("k", k), _matrix("v", v)
    offsets, longest = _offsets(q, offsets)
    chosen.max_length = chosen.max_length or longest
    _same_place(q, k=k, v=v, offsets=offsets, **{name: options[name] for name in _ARRAYS})
    out = _empty(v, (v.shape[0], v.shape[1] * (3 if fuxi else 1)))
    _call(_turbogr.attention, q, chosen, q, k, v, offsets, out)
    return out


def _attention_backward(
    fuxi: bool, dout: Any, q: Any, k: Any, v: Any, offsets: Any, options: dict[str, Any]
) -> tuple[Any, ...]:
    chosen = _options(fuxi, **options)
    q, k, v = _matrix("q", q), _matrix("k", k), _matrix("v", v)
    dout = _matrix("dout", dout)
    offsets, longest = _offsets(q, offsets)
    chosen.max_length = chosen.max_length or longest
    _same_place(q, k=k, v=v, dout=dout, offsets=offsets, **{name: options[name] for name in _ARRAYS})
    dq, dk, dv = (_empty(part, tuple(part.shape)) for part in (q, k, v))
    tables = [_optional(name, options[name]) for name in ("position", "time")]
    dposition, dtime = (None if t is None else _empty(t, tuple(t.shape), zero=True) for t in tables)
    _call(_turbogr.attention_backward, q, chosen, q, k, v, offsets, dout, dq, dk, dv, dposition, dtime)
    return dq, dk, dv, dposition, dtime


def hstu_attention(
    q: Any, k: Any, v: Any, offsets: Any, *, heads: int = 1, alpha: float = 1.0, norm_length: float = 1.0,
    window: int = 0, position: Any = None, time: Any = None, key_times: Any = None, query_times: Any = None,
    num_prefix: Any = None, num_targets: Any = None, max_length: int = 0,
) -> Any:  # fmt: skip
    """HSTU's attention: A_ij = SiLU(alpha q_i . k_j + b_ij) / norm_length where token i sees token j; A V.

    q, k [N, heads * dq], v [N, heads * dv]; the result is like v. A token sees itself and those before it (the last
    ``window``, if that is above 0); ``num_prefix`` and ``num_targets`` [B] say how many tokens at a sequence's start all
    see, and how many at its end only themselves do. Biases: ``position`` [2 S - 1], weight S - 1 + j - i, and ``time``
    [129], by the time from ``key_times`` to ``query_times`` [N] (int64).
    """
    return _attention(False, q, k, v, offsets, dict(
        heads=heads, alpha=alpha, norm_length=norm_length, window=window, position=position, time=time,
        key_times=key_times, query_times=query_times, num_prefix=num_prefix, num_targets=num_targets,
        max_length=max_length))  # fmt: skip


def hstu_attention_backward(
    dout: Any, q: Any, k: Any, v: Any, offsets: Any, *, heads: int = 1, alpha: float = 1.0, norm_length: float = 1.0,
    window: int = 0, position: Any = None, time: Any = None, key_times: Any = None, query_times: Any = None,
    num_prefix: Any = None, num_targets: Any = None, max_length: int = 0,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of q, k, v, position and time (None where there is none) from that of the result."""
    return _attention_backward(False, dout, q, k, v, offsets, dict(
        heads=heads, alpha=alpha, norm_length=norm_length, window=window, position=position, time=time,
        key_times=key_times, query_times=query_times, num_prefix=num_prefix, num_targets=num_targets,
        max_length=max_length))  # fmt: skip


def fuxi_attention(
    q: Any, k: Any, v: Any, offsets: Any, *, heads: int = 1, alpha: float = 1.0, norm_length: float = 1.0,
    window: int = 0, position: Any = None, time: Any = None, key_times: Any = None, query_times: Any = None,
    num_prefix: Any = None, num_targets: Any = None, max_length: int = 0,
) -> Any:  # fmt: skip
    """FuXi's attention: three maps over the same values, side by side in each head: by position, by time, and
    SiLU(alpha q_i . k_j) / norm_length. The result is [N, heads * 3 * dv]; a map without its table is zero."""
    return _attention(True, q, k, v, offsets, dict(
        heads=heads, alpha=alpha, norm_length=norm_length, window=window, position=position, time=time,
        key_times=key_times, query_times=query_times, num_prefix=num_prefix, num_targets=num_targets,
        max_length=max_length))  # fmt: skip


def fuxi_attention_backward(
    dout: Any, q: Any, k: Any, v: Any, offsets: Any, *, heads: int = 1, alpha: float = 1.0, norm_length: float = 1.0,
    window: int = 0, position: Any = None, time: Any = None, key_times: Any = None, query_times: Any = None,
    num_prefix: Any = None, num_targets: Any = None, max_length: int = 0,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of q, k, v, position and time (None where there is none) from that of the result."""
    return _attention_backward(True, dout, q, k, v, offsets, dict(
        heads=heads, alpha=alpha, norm_length=norm_length, window=window, position=position, time=time,
        key_times=key_times, query_times=query_times, num_prefix=num_prefix, num_targets=num_targets,
        max_length=max_length))  # fmt: skip


def sampled_softmax(
    query: Any, items: Any, positive: Any, negatives: Any, *, correction: Any = None, temperature: float = 0.05,
    normalize: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """Softmax cross entropy of an item against sampled negatives: (loss [N], log of the sum of exponentials [N]).

    query [N, D], items [U, D], each item once; ``positive`` [N] and ``negatives`` [R] (shared) or [N, R] (each token's own)
    are rows of items (int32). A negative that is the positive does not count. ``correction`` [U] is subtracted from an
    item's logit where it is a negative.
    """
    query, items = _matrix("query", query), _matrix("items", items)
    loss, saved = (_empty(query, (query.shape[0],), sums=True) for _ in range(2))
    negatives = _array("negatives", negatives, "int32")
    if negatives.ndim not in (1, 2):
        raise ValueError(f"negatives has {negatives.ndim} dimensions; wanted: [R] or [N, R]")
    positive, correction = _array("positive", positive, "int32"), _optional("correction", correction)
    _same_place(query, items=items, positive=positive, negatives=negatives, correction=correction)
    scale, normalize = arguments.number_of("temperature", temperature), arguments.flag_of("normalize", normalize)
    parts = (query, items, positive, negatives, correction, scale, normalize)
    _call(_turbogr.sampled_softmax, query, *parts, loss, saved)
    return loss, saved


def sampled_softmax_backward(
    dloss: Any, log_sum_exp: Any, query: Any, items: Any, positive: Any, negatives: Any, *, correction: Any = None,
    temperature: float = 0.05, normalize: bool = True,
) -> tuple[Any, Any]:  # fmt: skip
    """The gradients of query and items; those of items are sums in float32 where items are in bfloat16."""
    query, items = _matrix("query", query), _matrix("items", items)
    dquery = _empty(query, tuple(query.shape))
    ditems = _empty(items, tuple(items.shape), sums=True, zero=True)
    negatives = _array("negatives", negatives, "int32")
    if negatives.ndim not in (1, 2):
        raise ValueError(f"negatives has {negatives.ndim} dimensions; wanted: [R] or [N, R]")
    positive, correction = _array("positive", positive, "int32"), _optional("correction", correction)
    saved, dloss = _array("log_sum_exp", log_sum_exp), _array("dloss", dloss)
    _same_place(
        query, items=items, positive=positive, negatives=negatives, correction=correction, log_sum_exp=saved, dloss=dloss
    )
    scale, normalize = arguments.number_of("temperature", temperature), arguments.flag_of("normalize", normalize)
    parts = (query, items, positive, negatives, correction, scale, normalize)
    _call(_turbogr.sampled_softmax_backward, query, *parts, saved, dloss, dquery, ditems)
    return dquery, ditems
