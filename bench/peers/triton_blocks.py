"""Two more blocks in Triton, where torch.compile leaves time on the table: the gated half of a feed-forward network, and the
cross-entropy over logits, which become their gradient in place.
"""
import torch
import triton
import triton.language as tl


# --- silu(a) b -----------------------------------------------------------------------------------------------------------

@triton.jit
def _swiglu_kernel(H, Y, F, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(H + row * 2 * F + x, mask=x < F, other=0.0).to(tl.float32)
    b = tl.load(H + row * 2 * F + F + x, mask=x < F, other=0.0).to(tl.float32)
    tl.store(Y + row * F + x, a * tl.sigmoid(a) * b, mask=x < F)


@triton.jit
def _swiglu_back_kernel(H, DY, DH, F, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(H + row * 2 * F + x, mask=x < F, other=0.0).to(tl.float32)
    b = tl.load(H + row * 2 * F + F + x, mask=x < F, other=0.0).to(tl.float32)
    dy = tl.load(DY + row * F + x, mask=x < F, other=0.0).to(tl.float32)
    p = tl.sigmoid(a)
    tl.store(DH + row * 2 * F + x, dy * b * p * (1.0 + a * (1.0 - p)), mask=x < F)
    tl.store(DH + row * 2 * F + F + x, dy * a * p, mask=x < F)


def _blocks(h):
    rows, F = h.numel() // h.shape[-1], h.shape[-1] // 2
    block = min(triton.next_power_of_2(F), 1024)
    return F, block, (rows, triton.cdiv(F, block))


@torch.library.custom_op("peers::swiglu", mutates_args=())
def swiglu_op(h: torch.Tensor) -> torch.Tensor:
    h = h.contiguous()
    F, block, grid = _blocks(h)
    y = h.new_empty(*h.shape[:-1], F)
    _swiglu_kernel[grid](h, y, F, BLOCK=block, num_warps=4)
    return y


@torch.library.custom_op("peers::swiglu_back", mutates_args=())
def swiglu_back(h: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    h, dy = h.contiguous(), dy.contiguous()
    F, block, grid = _blocks(h)
    dh = torch.empty_like(h)
    _swiglu_back_kernel[grid](h, dy, dh, F, BLOCK=block, num_warps=4)
    return dh


swiglu_op.register_fake(lambda h: h.new_empty(*h.shape[:-1], h.shape[-1] // 2))
swiglu_back.register_fake(lambda h, dy: h.new_empty(h.shape))
swiglu_op.register_autograd(lambda ctx, dy: swiglu_back(*ctx.saved_tensors, dy), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


# --- cross-entropy ---------------------------------------------------------------------------------------------------------

@triton.jit
def _xent_kernel(Z, LABEL, LOSS, COUNT, vocab, width, BLOCK: tl.constexpr):
    """A row of logits: its loss, and in its place the gradient of the mean over COUNT labels. Read twice; the second time it
    comes from the cache."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(LABEL + row)
    x = tl.arange(0, BLOCK)
    high = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, vocab, BLOCK):
        z = tl.load(Z + row * width + i + x, mask=i + x < vocab, other=float("-inf")).to(tl.float32)
        new = tl.maximum(high, z)
        total = total * tl.exp(high - new) + tl.exp(z - new)
        high = new
    top = tl.max(high, 0)
    lse = top + tl.log(tl.sum(total * tl.exp(high - top), 0))
    own = tl.load(Z + row * width + tl.maximum(label, 0)).to(tl.float32)
    tl.store(LOSS + row, tl.where(label >= 0, lse - own, 0.0))
    scale = tl.where(label >= 0, 1.0 / tl.load(COUNT), 0.0)
    tl.debug_barrier()  # the row's own logit is read before it is overwritten
    for i in range(0, width, BLOCK):
        z = tl.load(Z + row * width + i + x, mask=i + x < vocab, other=float("-inf")).to(tl.float32)
        g = (tl.exp(z - lse) - tl.where(i + x == label, 1.0, 0.0)) * scale
        tl.store(Z + row * width + i + x, g, mask=i + x < width)


class Head(torch.autograd.Function):
    """Mean cross-entropy of x w^T, its gradient made with it. x (M,d), w (V',d) of one type, labels (M), -1 does not count;
    the vocabulary is the first `vocab` rows of w."""

    @staticmethod
    def forward(ctx, x, w, labels, vocab):
        z = x @ w.t()
        loss, count = x.new_empty(x.shape[0], dtype=torch.float32), (labels >= 0).sum().float()
        _xent_kernel[(x.shape[0],)](z, labels, loss, count, vocab, w.shape[0], BLOCK=min(triton.next_power_of_2(vocab), 4096), num_warps=8)
        ctx.save_for_backward(z @ w, z.t() @ x)
        return loss.sum() / count

    @staticmethod
    def backward(ctx, dloss):
        dx, dw = ctx.saved_tensors
        return dx.mul_(dloss), dw.mul_(dloss), None, None


def head_loss(x, embed, labels, vocab):
    """x (B,T,d), embed (V',d), labels (B,T)."""
    x = x.reshape(-1, x.shape[-1])
    return Head.apply(x, embed.to(x.dtype), labels.reshape(-1), vocab)


def swiglu(h):
    return swiglu_op(h)
