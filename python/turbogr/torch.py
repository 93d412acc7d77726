"""turbogr's operators inside PyTorch: functions with gradients and an HSTU block, on the CPU and (with CUDA) on GPUs.

Nothing here is linked with PyTorch: tensors are lent to the engine by DLPack, so any version of it will do.
"""

from __future__ import annotations

from typing import Any

import torch

from turbogr import _arguments as arguments
from turbogr import ops

__all__ = ["HSTUBlock", "fuxi_attention", "hstu_attention", "sampled_softmax"]


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """Autograd may hand over a gradient that is expanded or transposed."""
    return gradient.contiguous()


def _tensors(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is {arguments.shown(value)}; wanted: a torch.Tensor")


def _rows(name: str, numbers: torch.Tensor) -> torch.Tensor:
    """Row numbers as the engine wants them; in the CPU's memory those that do not fit are refused."""
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        raise TypeError(f"{name} has the type {numbers.dtype}; wanted: whole numbers")
    narrow = numbers.to(torch.int32)
    if numbers.is_cpu and numbers.layout == torch.strided and not torch.equal(narrow.to(numbers.dtype), numbers):
        raise ValueError(f"{name} has row numbers past 2^31")
    return narrow


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, position: Any, time: Any, offsets: Any, fuxi: bool, options: Any) -> Any:
        tables = {"position": position, "time": time}
        ctx.save_for_backward(q, k, v, position, time, offsets)
        ctx.fuxi, ctx.options = fuxi, options
        forward = ops.fuxi_attention if fuxi else ops.hstu_attention
        return forward(q, k, v, offsets, **tables, **options)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: torch.Tensor) -> Any:
        q, k, v, position, time, offsets = ctx.saved_tensors
        backward = ops.fuxi_attention_backward if ctx.fuxi else ops.hstu_attention_backward
        gradients = backward(_dense(dout), q, k, v, offsets, position=position, time=time, **ctx.options)
        return (*gradients, None, None, None)


def _attention(fuxi: bool, q: Any, k: Any, v: Any, offsets: Any, position: Any, time: Any, options: Any) -> torch.Tensor:
    tables = {"position": position, "time": time}
    _tensors(q=q, k=k, v=v, offsets=offsets, **{name: table for name, table in tables.items() if table is not None})
    return _Attention.apply(q, k, v, position, time, offsets, fuxi, options)


def hstu_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor, *, position: torch.Tensor | None = None,
    time: torch.Tensor | None = None, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """:func:`turbogr.ops.hstu_attention` with gradients of q, k, v, position and time."""
    return _attention(False, q, k, v, offsets, position, time, options)


def fuxi_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, offsets: torch.Tensor, *, position: torch.Tensor | None = None,
    time: torch.Tensor | None = None, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """:func:`turbogr.ops.fuxi_attention` with gradients of q, k, v, position and time."""
    return _attention(True, q, k, v, offsets, position, time, options)


class _SampledSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Any, items: Any, positive: Any, negatives: Any, correction: Any, options: Any) -> Any:
        loss, saved = ops.sampled_softmax(query, items, positive, negatives, correction=correction, **options)
        ctx.save_for_backward(query, items, positive, negatives, correction, saved)
        ctx.options = options
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dloss: torch.Tensor) -> Any:
        query, items, positive, negatives, correction, saved = ctx.saved_tensors
        dquery, ditems = ops.sampled_softmax_backward(
            _dense(dloss), saved, query, items, positive, negatives, correction=correction, **ctx.options
        )
        return dquery, ditems.to(items.dtype), None, None, None, None


def sampled_softmax(
    query: torch.Tensor, items: torch.Tensor, positive: torch.Tensor, negatives: torch.Tensor, *,
    correction: torch.Tensor | None = None, temperature: float = 0.05, normalize: bool = True,
) -> torch.Tensor:  # fmt: skip
    """The loss [N] of :func:`turbogr.ops.sampled_softmax`, with gradients of query and items."""
    _tensors(query=query, items=items, positive=positive, negatives=negatives)
    if correction is not None:
        _tensors(correction=correction)
    options = {"temperature": temperature, "normalize": normalize}
    rows = _rows("positive", positive), _rows("negatives", negatives)
    return _SampledSoftmax.apply(query, items, *rows, correction, options)


def _times(name: str, value: Any, tokens: int) -> torch.Tensor:
    _tensors(**{name: value})
    if value.dtype != torch.int64 or list(value.shape) != [tokens]:
        raise ValueError(f"{name} is {value.dtype} {list(value.shape)}; wanted: torch.int64 [{tokens}], a time of each row of x")
    return value


class HSTUBlock(torch.nn.Module):
    """One HSTU layer over jagged sequences: y = x + dropout(U * norm(attention(Q, K, V))) W_o + b_o with
    [U | V | Q | K] = SiLU(norm(x) W).

    ``block(x, offsets)`` takes x [N, width] and int64 offsets [B + 1]; with ``time_bias`` also ``times`` [N], of each
    token, and ``query_times`` [N], of the token after it (default: its own).
    """

    def __init__(
        self, width: int, heads: int = 1, *, query_width: int | None = None, value_width: int | None = None,
        max_length: int = 200, dropout: float = 0.0, alpha: float = 1.0, norm_length: float | None = None,
        position_bias: bool = True, time_bias: bool = False, eps: float = 1e-6,
    ):  # fmt: skip
        super().__init__()
        width, heads = (arguments.integer_of(name, n, 1) for name, n in (("width", width), ("heads", heads)))
        max_length = arguments.integer_of("max_length", max_length, 1)
        of_a_head = {"query_width": query_width, "value_width": value_width}
        if width % heads != 0 and any(value is None for value in of_a_head.values()):
            raise ValueError(f"heads is {heads} and width {width}, which they do not share evenly; give query_width and value_width")
        for name, value in of_a_head.items():
            of_a_head[name] = width // heads if value is None else arguments.integer_of(name, value, 1)
        self.heads, self.query, self.value = heads, heads * of_a_head["query_width"], heads * of_a_head["value_width"]
        self.alpha, self.eps = arguments.number_of("alpha", alpha), arguments.number_of("eps", eps)
        self.dropout = arguments.number_of("dropout", dropout)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; wanted: from 0 on and below 1")
        self.norm_length = arguments.number_of("norm_length", max_length if norm_length is None else norm_length)
        if self.norm_length <= 0 or self.eps <= 0:
            raise ValueError(f"norm_length is {self.norm_length} and eps {self.eps}; wanted: above 0")
        position_bias = arguments.flag_of("position_bias", position_bias)
        time_bias = arguments.flag_of("time_bias", time_bias)
        self.projection = torch.nn.Parameter(torch.empty(width, 2 * self.value + 2 * self.query))
        self.output = torch.nn.Linear(self.value, width)
        self.position = torch.nn.Parameter(torch.empty(2 * max_length - 1)) if position_bias else None
        self.time = torch.nn.Parameter(torch.empty(ops.TIME_BUCKETS)) if time_bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights as at the start of a run of turbogr's."""
        torch.nn.init.normal_(self.projection, std=0.02)
        torch.nn.init.xavier_uniform_(self.output.weight)
        torch.nn.init.zeros_(self.output.bias)
        for table in (self.position, self.time):
            if table is not None:
                torch.nn.init.normal_(table, std=0.02)

    def forward(
        self, x: torch.Tensor, offsets: torch.Tensor, times: torch.Tensor | None = None,
        query_times: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        _tensors(x=x, offsets=offsets)
        if x.ndim != 2 or x.shape[1] != len(self.projection):
            raise ValueError(f"x is {list(x.shape)}; wanted: [tokens, {len(self.projection)}]")
        normed = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)
        projected = torch.nn.functional.silu(normed @ self.projection)
        u, v, q, k = projected.split([self.value, self.value, self.query, self.query], dim=-1)
        options: dict[str, Any] = {"heads": self.heads, "alpha": self.alpha, "norm_length": self.norm_length}
        if self.time is not None:
            if times is None:
                raise ValueError("times is None and the block has a time bias; give the times of the tokens")
            options["key_times"] = _times("times", times, len(x))
            options["query_times"] = times if query_times is None else _times("query_times", query_times, len(x))
        # Sums over many tokens: tables stay in float32 where the rest is in bfloat16.
        sums = torch.float64 if q.dtype == torch.float64 else torch.float32
        position, time = (None if table is None else table.to(sums) for table in (self.position, self.time))
        attended = hstu_attention(q, k, v, offsets, position=position, time=time, **options)
        gated = u * torch.nn.functional.layer_norm(attended, attended.shape[-1:], eps=self.eps)
        gated = torch.nn.functional.dropout(gated, self.dropout, self.training)
        return x + self.output(gated)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, norm_length={self.norm_length:g}"
