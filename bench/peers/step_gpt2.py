"""A training step of GPT-2 124M in PyTorch, for timing: prints JSON lines (README.md). The peer of
`tenon bench gpt2_124m train.batch=4 train.context=64`. No dropout.
Keep: the same parameters as gpt_twin.py, which holds this to the C text."""
import torch.nn.functional as F

import against
import gpt_twin
import step

SETTINGS = "shape=gpt2 dim=768 layers=12 heads=12 vocab=50257"


def forward(p, layers, heads, tokens):
    """p: parameters by name; tokens (B,T) -> (B,T,d), ready for the head."""
    B, T = tokens.shape
    x = F.embedding(tokens, p["embed"]) + p["position"][:T]
    d = x.shape[-1]
    for i in range(layers):
        at = lambda name, layer=i: p[f"layer{layer}.{name}"]
        u = F.layer_norm(x, (d,), at("norm1.w"), at("norm1.b"))
        qkv = F.linear(u, at("attn.w_qkv"), at("attn.b_qkv")).view(B, T, 3, heads, d // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = step.causal_attention(q, k, v).transpose(1, 2).reshape(B, T, d)
        x = x + F.linear(y, at("attn.w_out"), at("attn.b_out"))
        u = F.layer_norm(x, (d,), at("norm2.w"), at("norm2.b"))
        h = F.gelu(F.linear(u, at("ffn.w1"), at("ffn.b1")), approximate="tanh")
        x = x + F.linear(h, at("ffn.w2"), at("ffn.b2"))
    return F.layer_norm(x, (d,), p["norm_f.w"], p["norm_f.b"])


def make_step(args, dtype):
    net, tokens, labels = step.make_net(gpt_twin.Gpt, gpt_twin.DEFAULTS, against.TRAIN, args.settings, args.batch, args.length)
    if net.settings["shape"] != "gpt2":
        raise ValueError("shape must be gpt2")
    layers, heads = net.settings["layers"], net.heads

    return step.language_step(net, lambda t: forward(net.params, layers, heads, t), tokens, labels, args, dtype)


if __name__ == "__main__":
    options = lambda a: step.add_model_options(a, 4, 64, SETTINGS, 0)
    step.run("gpt2_124m", step.parse_arguments("One training step of GPT-2 124M.", options), make_step)
