"""turbogr's operators inside PyTorch: functions with gradients and an HSTU block, on the CPU and (with CUDA) on GPUs.

Nothing here is linked with PyTorch: tensors are lent to the engine by DLPack, so any version of it will do.
"""

from __future__ import annotations

from typing import Any

import torch

from turbogr import ops

__all__ = ["HSTUBlock", "fuxi_attention", "hstu_attention", "sampled_softmax"]


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """Autograd may hand over a gradient that is expanded or transposed."""
    return gradient.contiguous()


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
    for name, tensor in (("q", q), ("k", k), ("v", v), ("offsets", offsets)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {ops.arguments.shown(tensor)}; wanted: a torch.Tensor")
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
    options = {"temperature": temperature, "normalize": normalize}
    return _SampledSoftmax.apply(query, items, positive.to(torch.int32), negatives.to(torch.int32), correction, options)


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
        self.heads, self.alpha, self.dropout, self.eps = heads, alpha, dropout, eps
        self.query = heads * (query_width or width // heads)
        self.value = heads * (value_width or width // heads)
        self.norm_length = float(max_length if norm_length is None else norm_length)
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
        normed = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps)
        projected = torch.nn.functional.silu(normed @ self.projection)
        u, v, q, k = projected.split([self.value, self.value, self.query, self.query], dim=-1)
        options: dict[str, Any] = {"heads": self.heads, "alpha": self.alpha, "norm_length": self.norm_length}
        if self.time is not None:
            if times is None:
                raise ValueError("times is None and the block has a time bias; give the times of the tokens")
            options["key_times"] = times
            options["query_times"] = times if query_times is None else query_times
        # Sums over many tokens: tables stay in float32 where the rest is in bfloat16.
        sums = torch.float64 if q.dtype == torch.float64 else torch.float32
        position, time = (None if table is None else table.to(sums) for table in (self.position, self.time))
        attended = hstu_attention(q, k, v, offsets, position=position, time=time, **options)
        gated = u * torch.nn.functional.layer_norm(attended, attended.shape[-1:], eps=self.eps)
        gated = torch.nn.functional.dropout(gated, self.dropout, self.training)
        return x + self.output(gated)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, norm_length={self.norm_length:g}"
