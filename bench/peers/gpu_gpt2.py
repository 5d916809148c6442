"""A training step of GPT-2 124M on a GPU in PyTorch, compiled, for timing beside `tenon bench gpt2_124m device=cuda`:

    python3 bench/peers/gpu_gpt2.py [--form compiled|autocast|eager] [--batch 64] [--length 1024]

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


def begin(p, tokens, dtype):
    x = (F.embedding(tokens, p["embed"]) + p["position"][:tokens.shape[1]]).to(dtype)
    return x, layernorm(x, p["layer0.norm1.w"], p["layer0.norm1.b"])


def make_layer(heads):
    def layer(kind, p, x, u):
        B, T, d = x.shape
        qkv = linear(u, p["attn.w_qkv"], p["attn.b_qkv"]).view(B, T, 3, heads, d // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = step.causal_attention(q, k, v).transpose(1, 2).reshape(B, T, d)
        x = x + linear(y, p["attn.w_out"], p["attn.b_out"])
        h = F.gelu(linear(layernorm(x, p["norm2.w"], p["norm2.b"]), p["ffn.w1"], p["ffn.b1"]), approximate="tanh")
        x = x + linear(h, p["ffn.w2"], p["ffn.b2"])
        return x, layernorm(x, p["next.w"], p["next.b"])

    return layer


def autocast_body(params, layers, heads):
    def body(tokens):
        with torch.autocast("cuda", torch.bfloat16):
            return step_gpt2.forward(params, layers, heads, tokens).to(torch.bfloat16)

    return torch.compile(body)


def make(args):
    net, tokens, labels = gpu_step.make_net(gpt_twin.Gpt, gpt_twin.DEFAULTS, args.settings, args.batch, args.length, steps=args.first, folder=args.text)
    params, layers, compiled = gpu_step.device_params(net, "cuda"), net.settings["layers"], args.form != "eager"
    if args.form == "autocast":
        body = autocast_body(params, layers, net.heads)
    else:
        body = gpu_step.make_body(params, ["A"] * layers, begin, make_layer(net.heads), torch.bfloat16, args.graph if compiled else "none")
    head = args.head or ("whole" if compiled else "rows")
    return net, params, gpu_step.make_loss(body, head, params["embed"], net.settings["vocab"], compiled), tokens.cuda(), labels.cuda()


if __name__ == "__main__":
    nets = {"gpt2": step_gpt2.SETTINGS}
    gpu_step.run("gpt", gpu_step.parse_arguments("One training step of GPT-2 124M on a GPU.", FORMS, 64, 1024, nets), make)
