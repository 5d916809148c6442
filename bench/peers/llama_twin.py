"""A llama2.c checkpoint in PyTorch, read and computed without Tenon: logits and the mean loss on given tokens.

    python llama_twin.py CHECKPOINT.bin --out ref.safetensors [--tokens 1,403,407,...] [--length 64]
    python llama_twin.py CHECKPOINT.bin --greedy 200      the likeliest tokens after the start, one number a line

The file it writes is one that `tenon check gpt --against FILE` reads (docs/against.md): weights under our names, logits,
loss and gradients. It is written from the format and the network's mathematics: rotations as products of complex numbers,
heads one by one, float64. Without --tokens they are drawn from the network itself, so that they look like its text.
"""
import argparse
import struct
import sys

import torch
import torch.nn.functional as F

import against

EPS, BASE, START = 1e-5, 10000.0, 1


def read_checkpoint(path):
    """The header and the tensors under the format's own names, layers first."""
    with open(path, "rb") as f:
        raw = f.read()
    dim, hidden, layers, heads, kv, vocab, context = struct.unpack("<7i", raw[:28])
    tied, vocab = vocab > 0, abs(vocab)
    size = dim // heads
    numbers = torch.frombuffer(bytearray(raw[28:]), dtype=torch.float32)
    shapes = [("embed", (vocab, dim)), ("rms_att", (layers, dim)), ("wq", (layers, dim, dim)),
              ("wk", (layers, kv * size, dim)), ("wv", (layers, kv * size, dim)), ("wo", (layers, dim, dim)),
              ("rms_ffn", (layers, dim)), ("w1", (layers, hidden, dim)), ("w2", (layers, dim, hidden)),
              ("w3", (layers, hidden, dim)), ("rms_final", (dim,)), ("cos", (context, size // 2)),
              ("sin", (context, size // 2))] + ([] if tied else [("head", (vocab, dim))])
    tensors, at = {}, 0
    for name, shape in shapes:
        count = torch.Size(shape).numel()
        tensors[name] = numbers[at:at + count].view(shape).double()
        at += count
    if at != numbers.numel():
        raise ValueError(f"{path}: {numbers.numel()} numbers where the header promises {at}")
    header = {"dim": dim, "ffn": hidden, "layers": layers, "heads": heads, "kv_heads": kv, "vocab": vocab,
              "train.context": context}
    return header, tensors, tied


def rms(x, weight):
    return weight * x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + EPS)


def rotate(x):
    """x (B,T,H,D): the pair (2j, 2j+1) as a complex number times e^{i t BASE^(-2j/D)}."""
    T, D = x.shape[1], x.shape[-1]
    angle = torch.arange(T).double()[:, None] * BASE ** (-torch.arange(0, D, 2).double() / D)
    turn = torch.polar(torch.ones_like(angle), angle)[None, :, None]
    return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], D // 2, 2)) * turn).flatten(-2)


def attend(x, w, l, h):
    B, T, d = x.shape
    H, KV = h["heads"], h["kv_heads"]
    q = rotate((x @ w["wq"][l].T).view(B, T, H, d // H))
    k = rotate((x @ w["wk"][l].T).view(B, T, KV, d // H))
    v = (x @ w["wv"][l].T).view(B, T, KV, d // H)
    outs = []
    for i in range(H):
        j = i // (H // KV)
        score = q[:, :, i] @ k[:, :, j].mT / (d // H) ** 0.5
        score = score + torch.full((T, T), float("-inf"), dtype=score.dtype).triu(1)
        outs.append(score.softmax(-1) @ v[:, :, j])
    return torch.cat(outs, -1) @ w["wo"][l].T


def forward(tokens, w, h):
    """tokens (B,T) -> logits (B,T,V)."""
    x = w["embed"][tokens]
    for l in range(h["layers"]):
        x = x + attend(rms(x, w["rms_att"][l]), w, l, h)
        u = rms(x, w["rms_ffn"][l])
        x = x + (F.silu(u @ w["w1"][l].T) * (u @ w["w3"][l].T)) @ w["w2"][l].T
    return rms(x, w["rms_final"]) @ w.get("head", w["embed"]).T


def draw_text(w, h, batch, length):
    rng = torch.Generator().manual_seed(1)
    text = torch.full((batch, 1), START)
    with torch.no_grad():
        while text.shape[1] <= length:
            p = forward(text, w, h)[:, -1].softmax(-1)
            text = torch.cat([text, torch.multinomial(p, 1, generator=rng)], 1)
    return text


def greedy(w, h, count):
    text = torch.tensor([[START]])
    with torch.no_grad():
        while text.shape[1] <= count:
            text = torch.cat([text, forward(text, w, h)[:, -1:].argmax(-1)], 1)
    return text[0, 1:].tolist()


def ours(w, h, tied):
    """The same numbers under the names and shapes of src/models/gpt."""
    out = {"embed": w["embed"], "norm_f.w": w["rms_final"]}
    for l in range(h["layers"]):
        out.update({f"layer{l}.norm1.w": w["rms_att"][l], f"layer{l}.norm2.w": w["rms_ffn"][l],
                    f"layer{l}.attn.w_qkv": torch.cat([w["wq"][l], w["wk"][l], w["wv"][l]]),
                    f"layer{l}.attn.w_out": w["wo"][l], f"layer{l}.ffn.w1": torch.cat([w["w1"][l], w["w3"][l]]),
                    f"layer{l}.ffn.w2": w["w2"][l]})
    return out if tied else {**out, "head": w["head"]}


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("checkpoint")
    a.add_argument("--out")
    a.add_argument("--greedy", type=int, help="print so many tokens and do no more")
    a.add_argument("--tokens", help="numbers with commas: one sequence")
    a.add_argument("--batch", type=int, default=2)
    a.add_argument("--length", type=int, default=48)
    args = a.parse_args()
    h, w, tied = read_checkpoint(args.checkpoint)
    if args.greedy:
        print(*greedy(w, h, args.greedy), sep="\n")
        return
    if not args.out:
        a.error("--out or --greedy is needed")
    text = torch.tensor([[int(x) for x in args.tokens.split(",")]]) if args.tokens else draw_text(w, h, args.batch, args.length)
    tokens, labels = text[:, :-1], text[:, 1:]
    for name in w:
        w[name].requires_grad_()
    logits = forward(tokens, w, h)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    grads = ours({name: t.grad for name, t in w.items() if t.grad is not None}, h, tied)
    tensors = {"input.tokens": tokens.int(), "input.labels": labels.int(), "output.loss": loss.detach(),
               "output.logits": logits.detach().float()}
    for name, t in ours(w, h, tied).items():
        tensors[f"param.{name}"] = t.detach().float()
        tensors[f"grad.{name}"] = grads[name].float()
    settings = {"shape": "llama", **h, "tied": "true" if tied else "false", "norm_eps": EPS, "rope_base": BASE,
                "rope_pairs": "interleaved", "compute": "f32"}
    against.write_file(args.out, "gpt", settings, tensors)
    print(f"{args.out}: {loss.item():.9f} nats a token on {labels.numel()} tokens")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
