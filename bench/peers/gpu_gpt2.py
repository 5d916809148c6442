"""A training step of GPT-2 124M on a GPU in PyTorch, compiled, for timing beside `tenon bench gpt2_124m device=cuda`:

    python3 bench/peers/gpu_gpt2.py [--form compiled|eager] [--batch 64] [--length 1024]

bf16 activations over f32 weights, torch's attention, fused AdamW, gradients clipped without waiting for the GPU; the vocabulary is
padded to a multiple of 64, as one does for speed. `autocast` is the same under torch.autocast, which keeps the stream between the
layers in f32.
Keep: the same parameters as gpt_twin.py; nothing in the timed part that the other side does not do as well."""
import torch
import torch.nn.functional as F

import gpt_twin
import gpu_step
import step
import step_gpt2
from gpu_step import linear

FORMS = ("compiled", "autocast", "eager")


def layernorm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w.to(x.dtype), b.to(x.dtype))


def forward(p, layers, heads, tokens, dtype):
    """p: parameters by name; tokens (B,T) -> (B,T,d), ready for the head."""
    B, T = tokens.shape
    x = (F.embedding(tokens, p["embed"]) + p["position"][:T]).to(dtype)
    d = x.shape[-1]
    for i in range(layers):
        at = lambda name, layer=i: p[f"layer{layer}.{name}"]
        qkv = linear(layernorm(x, at("norm1.w"), at("norm1.b")), at("attn.w_qkv"), at("attn.b_qkv")).view(B, T, 3, heads, d // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = step.causal_attention(q, k, v).transpose(1, 2).reshape(B, T, d)
        x = x + linear(y, at("attn.w_out"), at("attn.b_out"))
        h = F.gelu(linear(layernorm(x, at("norm2.w"), at("norm2.b")), at("ffn.w1"), at("ffn.b1")), approximate="tanh")
        x = x + linear(h, at("ffn.w2"), at("ffn.b2"))
    return layernorm(x, p["norm_f.w"], p["norm_f.b"])


def make(args):
    net, tokens, labels = gpu_step.make_net(gpt_twin.Gpt, gpt_twin.DEFAULTS, args.settings, args.batch, args.length, steps=args.first)
    params = gpu_step.device_params(net, "cuda")
    layers, heads, vocab = net.settings["layers"], net.heads, net.settings["vocab"]
    rows = args.rows if args.rows >= 0 else 16384 if args.form == "eager" else 0

    def loss(tokens, labels):
        if args.form == "autocast":
            x = step_gpt2.forward(params, layers, heads, tokens)
        else:
            x = forward(params, layers, heads, tokens, torch.bfloat16)
        return gpu_step.head_loss(x.to(torch.bfloat16), params["embed"], labels, vocab, rows)

    inner = loss if args.form == "eager" else torch.compile(loss)

    def loss_of(tokens, labels):
        with torch.autocast("cuda", torch.bfloat16, enabled=args.form == "autocast"):
            return inner(tokens, labels)

    return net, params, loss_of, tokens.cuda(), labels.cuda()


if __name__ == "__main__":
    gpu_step.run("gpt2", "gpt", gpu_step.parse_arguments("One training step of GPT-2 124M on a GPU.", FORMS, 64, 1024, step_gpt2.SETTINGS), make)
