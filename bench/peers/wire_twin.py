"""The model `wire` in PyTorch, from its formulas: one latent message that frozen language models read (src/models/wire/wire.h).

    python wire_twin.py --out ref.safetensors --settings "place=keys loss.kd=0.5 a.shape='dim=16 heads=2 vocab=41'"

writes a file that `tenon check wire --against FILE` reads (docs/against.md): random readers, adapters and encoder, random batches, the
loss of the training step, all gradients, what evaluations put out (z, and -log p of each token) and the losses of a few
optimizer steps. Every text, question and answer is computed alone, at its own length, in float64: there is no mask, no padding and no
batch here that could be wrong in the same way. Slot dropout (keep) and dropout are not covered; readers are a and b.
"""
import argparse
import math
import sys

import torch
import torch.nn.functional as F

import against
from against import normal

AE = 0  # of the anchors AE, LM, QA
BOS, EOS = 1, 2

GPT = {"shape": "llama", "dim": 256, "layers": 4, "heads": 4, "kv_heads": "auto", "head_dim": "auto", "ffn": "auto", "vocab": 50257,
       "tied": "true", "qkv_bias": "false", "qk_norm": "false", "norm_eps": 0.0, "rope_base": 10000.0, "rope_pairs": "half",
       "train.context": 256, "compute": "f32"}

READER = {"shape": "", "ids": 23, "length": 7, "text": 9, "told": 19}
DEFAULTS = {
    **{f"{x}.{key}": value for x in "ab" for key, value in READER.items()},
    "slots": 5, "private": 0, "width": 8, "encoder": "bytes", "sender": "a", "sender_layer": "auto", "bytes": 11, "questions": 3,
    "contexts": 9, "dim": 12, "layers": 2, "heads": 3, "ffn": 20, "refiner": 0, "place": "keys", "hidden": 10,
    "loss.first": 0.0, "loss.k": 0, "loss.k_ce": 0.0, "loss.kd": 0.0, "loss.kd_temperature": 2.0, "loss.state": 0.0, "loss.states": 3, "loss.ae": 0.0,
    "ae.alone": 0, "ae.until": 0, "loss.nce": 0.0, "loss.nce_temperature": 0.1,
    "loss.entropy": 0.0, "loss.manifold": 0.0, "loss.rms": 0.0, "loss.scale": 0.0, "loss.align": 0.0, "loss.cosine": 0.0, "loss.align_k": 1,
}
# Of different shapes: one like Llama, one like Qwen 2.
CONFIG = {"a": "dim=16 layers=2 heads=4 kv_heads=4 ffn=24 vocab=29 rope_base=100",
          "b": "dim=12 layers=3 heads=6 kv_heads=2 head_dim=4 ffn=20 vocab=37 qkv_bias=true tied=false norm_eps=1e-5"}


def away(mean, std):
    """First values that are not those of a fresh model: biases and norms matter too."""
    return lambda rng, shape: mean + std * torch.randn(shape, generator=rng)


# --- a frozen reader -------------------------------------------------------------------------------------------------

class Reader:
    """A decoder over one row of vectors, weights under X. (Llama's mathematics: norms before, rotary places, grouped heads, swiglu)."""

    def __init__(self, net, letter, config):
        self.net, self.letter = net, letter
        self.s = s = against.parse_settings(config, GPT)
        s["kv_heads"] = s["heads"] if s["kv_heads"] == "auto" else s["kv_heads"]
        s["head_dim"] = s["dim"] // s["heads"] if s["head_dim"] == "auto" else s["head_dim"]
        s["ffn"] = -(-(8 * s["dim"] // 3) // 8) * 8 if s["ffn"] == "auto" else s["ffn"]
        s["norm_eps"] = s["norm_eps"] or 1e-6
        self.embed = self.weight("embed", (s["vocab"], s["dim"]), 0.3)
        self.head = self.embed if s["tied"] == "true" else self.weight("head", (s["vocab"], s["dim"]), 0.5)
        self.rho = net.frozen(f"to.{letter}.rms", self.embed.square().mean().sqrt().view(1))

    def weight(self, name, shape, std, mean=0.0):
        return self.net.frozen(f"{self.letter}.{name}", lambda: away(mean, std)(self.net.rng, shape))

    def matrix(self, name, to, source):
        return self.weight(name, (to, source), 1 / math.sqrt(source))

    def norm(self, x, name):
        return against.rms(x, self.s["norm_eps"]) * self.weight(f"{name}.w", (x.shape[-1],), 0.2, 1.0)

    def turn(self, x, first):
        """x (T,H,D): pair j as a complex number times e^{i p base^(-2j/D)}, p = first, first + 1, ..."""
        T, D = x.shape[0], x.shape[-1]
        place = torch.arange(first, first + T, dtype=x.dtype)[:, None]
        angle = place * self.s["rope_base"] ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
        turn = torch.polar(torch.ones_like(angle), angle)[:, None]
        if self.s["rope_pairs"] == "interleaved":
            z = torch.complex(x[..., 0::2], x[..., 1::2]) * turn
            return torch.stack([z.real, z.imag], -1).flatten(-2)
        z = torch.complex(x[..., :D // 2], x[..., D // 2:]) * turn
        return torch.cat([z.real, z.imag], -1)

    def attend(self, u, layer, before):
        """before: keys and values (M,KV,D) that every token sees and stands behind, or None."""
        s, T = self.s, u.shape[0]
        H, KV, D = s["heads"], s["kv_heads"], s["head_dim"]
        qkv = u @ self.matrix(f"{layer}.attn.w_qkv", (H + 2 * KV) * D, s["dim"]).T
        if s["qkv_bias"] == "true":
            qkv = qkv + self.weight(f"{layer}.attn.b_qkv", ((H + 2 * KV) * D,), 0.3)
        q, k, v = qkv.view(T, H + 2 * KV, D).split([H, KV, KV], 1)
        if s["qk_norm"] == "true":
            q, k = self.norm(q, f"{layer}.attn.norm_q"), self.norm(k, f"{layer}.attn.norm_k")
        first = 0 if before is None else before[0].shape[0]
        q, k = self.turn(q, first), self.turn(k, first)
        if before is not None:
            k, v = torch.cat([before[0], k]), torch.cat([before[1], v])
        outs = []
        for h in range(H):
            g = h * KV // H
            rows = []
            for t in range(T):  # a token sees what stands before it, and itself
                seen = first + t + 1
                p = (k[:seen, g] @ q[t, h] / math.sqrt(D)).softmax(0)
                rows.append(p @ v[:seen, g])
            outs.append(torch.stack(rows))
        return torch.cat(outs, -1) @ self.matrix(f"{layer}.attn.w_out", s["dim"], H * D).T

    def forward(self, x, before=None):
        """x (T,d) -> what goes into each layer and into the last norm, layers + 1 of (T,d), and what comes out of that norm."""
        s, states = self.s, []
        for l in range(s["layers"]):
            states.append(x)
            layer = f"layer{l}"
            x = x + self.attend(self.norm(x, f"{layer}.norm1"), layer, before and before[l])
            a, b = (self.norm(x, f"{layer}.norm2") @ self.matrix(f"{layer}.ffn.w1", 2 * s["ffn"], s["dim"]).T).chunk(2, -1)
            x = x + (F.silu(a) * b) @ self.matrix(f"{layer}.ffn.w2", s["dim"], s["ffn"]).T
        return [*states, x], self.norm(x, "norm_f")


# --- the wire --------------------------------------------------------------------------------------------------------

class Wire(against.Net):
    def __init__(self, settings, dtype, rng):
        super().__init__(settings, dtype, rng)
        self.held = {}  # frozen numbers
        self.readers = [Reader(self, x, settings[f"{x}.shape"]) for x in "ab" if settings[f"{x}.shape"]]
        self.M = settings["slots"] + len(self.readers) * settings["private"]

    def frozen(self, name, value):
        if name not in self.held:
            self.held[name] = (value() if callable(value) else value).detach().float().to(self.dtype)
        return self.held[name]

    def dense(self, x, name, to):
        d = x.shape[-1]
        return x @ self.param(f"{name}.w", (to, d), normal(1 / math.sqrt(d))).T + self.param(f"{name}.b", (to,), away(0, 0.2))

    def norm(self, x, name):
        w, b = self.param(f"{name}.w", (x.shape[-1],), away(1, 0.2)), self.param(f"{name}.b", (x.shape[-1],), away(0, 0.2))
        x = x - x.mean(-1, keepdim=True)
        return w * x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() + b

    def look(self, q, k, v, heads):
        """q (S,d), k and v (T,d): each head by itself. Nothing to look at gives zeros."""
        if not len(k):
            return torch.zeros_like(q)
        D = q.shape[-1] // heads
        cut = [slice(h * D, (h + 1) * D) for h in range(heads)]
        return torch.cat([(q[:, c] @ k[:, c].T / math.sqrt(D)).softmax(-1) @ v[:, c] for c in cut], -1)

    def encoder_layers(self, x, layers, heads, ffn):
        """Norms behind the sums, and every place sees every other."""
        d = x.shape[-1]
        for l in range(layers):
            with self.scope(f"layer{l}"):
                q, k, v = self.dense(x, "qkv", 3 * d).chunk(3, -1)
                x = self.norm(x + self.dense(self.look(q, k, v, heads), "out", d), "norm1")
                x = self.norm(x + self.dense(F.gelu(self.dense(x, "ffn1", ffn)), "ffn2", d), "norm2")
        return x

    def pool(self, H, name, slots):
        s, d = self.settings, H.shape[-1]
        with self.scope(name):
            Q = self.param("queries", (slots, d), normal(1 / math.sqrt(d)), decay=False)
            parts = self.waves(f"encoder.{name}.parts", 8 * slots)  # of the text, 8 for each slot
            H = H + parts[[(2 * t + 1) * 8 * slots // (2 * len(H)) for t in range(len(H))]]
            k, v = self.dense(H, "kv", 2 * d).chunk(2, -1)
            U = self.dense(self.look(self.dense(Q, "q", d), k, v, s["heads"]), "out", d) + Q
            g = self.dense(self.norm(U, "norm1"), "gate", d).sigmoid()
            U = g * U + (1 - g) * Q
            Y = U + self.dense(F.gelu(self.dense(self.norm(U, "norm2"), "ffn1", 2 * d)), "ffn2", d)
            return self.dense(self.norm(Y, "norm3"), "z", s["width"])

    def waves(self, name, longest):
        d = self.settings["dim"]
        t, i = torch.arange(longest).double()[:, None], torch.arange(d)
        angle = t / 10000.0 ** (2 * (i // 2) / d)
        return self.frozen(name, torch.where(i % 2 == 0, angle.sin(), angle.cos()))

    def sent(self, text):
        """States of the sender over its own tokens: what goes into a layer, or what its last norm gives; each of size 1."""
        reader = next(r for r in self.readers if r.letter == self.settings["sender"])
        states, last = reader.forward(reader.embed[text[reader.letter]])
        layer = self.settings["sender_layer"]
        return against.rms(last if layer in ("auto", reader.s["layers"]) else states[layer])

    def encode(self, context):
        """Z (M,width)."""
        s = self.settings
        if s["encoder"] == "free":
            z = self.param("free", (s["contexts"], self.M * s["width"]), normal(1), decay=False)[context["sample"]].view(self.M, -1)
        elif s["encoder"] == "constant":
            z = self.param("constant", (self.M, s["width"]), normal(1), decay=False)
        else:
            with self.scope("encoder"):
                if s["encoder"] == "bytes":
                    x = self.param("embed", (256, s["dim"]), normal(1))[context["bytes"]]
                    places = self.waves("encoder.places", s["bytes"])
                else:
                    x = self.dense(self.sent(context["text"]), "in", s["dim"])
                    places = self.waves("encoder.places", s[f"{s['sender']}.text"])
                H = self.encoder_layers(x + places[:len(x)], s["layers"], s["heads"], s["ffn"])
                pools = [("pool", s["slots"])] + [(f"pool_{r.letter}", s["private"]) for r in self.readers]
                z = torch.cat([self.pool(H, name, n) for name, n in pools if n])
        if s["refiner"]:
            with self.scope("encoder.refiner"):
                z = self.norm(self.encoder_layers(z, s["refiner"], 4, 4 * s["width"]), "norm")
        return z

    def adapt(self, reader, z):
        """What the reader is given of Z: vectors P (M,d), its anchors (3,d), keys and values of its layers or None; and P of any size."""
        s, r = self.settings, reader.s
        own = s["slots"] + self.readers.index(reader) * s["private"]
        z = torch.cat([z[:s["slots"]], z[own:own + s["private"]]])
        with self.scope(f"to.{reader.letter}"):
            u = self.norm(z + self.param("place", z.shape, normal(0.3), decay=False), "norm")
            a = self.dense(F.gelu(self.dense(F.gelu(self.dense(u, "in", s["hidden"])), "mid", s["hidden"])), "out", r["dim"])
            a = a + self.dense(u, "skip", r["dim"])
            a = self.dense(z, "film_gain", r["dim"]).sigmoid() * a + self.dense(z, "film_shift", r["dim"])
            p = a / a.square().mean(-1, keepdim=True).sqrt()
            anchors = reader.rho * self.param("anchors", (3, r["dim"]), normal(1), decay=False)
            if s["place"] == "embeddings":
                return reader.rho * self.param("gain", (1,), away(1.2, 0), decay=False) * p, anchors, None, a
            u = self.norm(p, "norm_keys")
            u = u + self.dense(u, "mix", r["dim"])
            L, KV, D = r["layers"], r["kv_heads"], r["head_dim"]
            both = u @ self.param("w_keys", (2 * L * KV * D, r["dim"]), normal(1 / math.sqrt(r["dim"]))).T
            keys, values = both.view(-1, 2, L, KV, D).unbind(1)
        return p, anchors, [(keys[:, l], values[:, l]) for l in range(L)], a

    def read(self, reader, given, kind, row):
        """BOS ; P ; anchor ; the rest of the row but its last token. States that say tokens 1 .. n-1, of all layers; and hidden ones."""
        P, anchors, before, _ = given
        x = [reader.embed[row[:1]], *([P] if before is None else []), anchors[kind][None], reader.embed[row[1:-1]]]
        states, hidden = reader.forward(torch.cat(x), before)
        says = slice(len(hidden) - (len(row) - 1), None)
        return [x[says] for x in states], hidden[says]

    def read_told(self, reader, told, n):
        """The same of text alone; row `told` ends in the n - 1 tokens that are said."""
        states, hidden = reader.forward(reader.embed[told[:-1]])
        says = slice(len(hidden) - (n - 1), None)
        return [x[says] for x in states], hidden[says]

    # --- losses

    def task(self, reader, given, contexts, keep):
        """Sums over all answers of the batch, each divided by what it is a mean of."""
        s, T = self.settings, self.settings["loss.kd_temperature"]
        K = s["loss.k"]
        nll, first, kd, state, entropy, align, cosine, head = [], [], [], [], [], [], [], [[] for _ in range(K)]  # head[t]: of token t of all answers that have so many
        for context, g in zip(contexts, given):
            for q in context["questions"]:
                q = q and q[reader.letter]
                if not q:
                    continue
                row, begin = q["row"], q["answer"]  # tokens from `begin` on are the answer and its end
                states, hidden = self.read(reader, g, context["kind"], row)
                logp = (hidden @ reader.head.T).log_softmax(-1)
                said = -logp[torch.arange(len(row) - 1), row[1:]]
                keep(said.detach(), begin)
                nll += said[begin - 1:]
                first.append(said[begin - 1])
                entropy.append(-(logp[begin - 1].exp() * logp[begin - 1]).sum())
                for p, y in list(zip(g[0], reader.embed[row[begin:]]))[:s["loss.align_k"] or None]:
                    align.append((p - y).square().mean())
                    cosine.append(1 - F.cosine_similarity(p, y, 0))
                for t, x in zip(range(K), said[begin - 1:]):
                    head[t].append(x)
                if not s["loss.kd"] and not s["loss.state"]:
                    continue
                told, last = self.read_told(reader, q["told"], len(row))
                seen = slice(begin - 1, begin - 1 + K if K else None)
                student = ((hidden @ reader.head.T) / T).log_softmax(-1)[seen]
                teacher = ((last @ reader.head.T) / T).log_softmax(-1)[seen]
                kd += (teacher.exp() * (teacher - student)).sum(-1)
                n = min(s["loss.states"], reader.s["layers"])
                gaps = [(a - b)[seen].square().mean(-1) for a, b in zip(states[-n:], told[-n:])]
                state += torch.stack(gaps).mean(0)
        mean = lambda x: torch.stack(x).mean() if x else 0.0
        k_ce = s["loss.k_ce"] / K * sum(mean(x) for x in head) if K else 0.0
        others = s["loss.align"] * mean(align) + s["loss.cosine"] * mean(cosine) - s["loss.entropy"] * mean(entropy)
        return (mean(nll) + s["loss.first"] * mean(first) + k_ce + s["loss.kd"] * T * T * mean(kd) + s["loss.state"] * mean(state)
                + others), mean(nll)

    def size(self, reader, given):
        """Terms of P itself."""
        s, total = self.settings, 0.0
        if s["loss.manifold"]:
            P, E = torch.cat([g[0] for g in given]), reader.embed
            gaps = P.mean(0) - E.mean(0), P.std(0, unbiased=False) - E.std(0, unbiased=False)
            total = total + s["loss.manifold"] * sum(x.square().mean() for x in gaps)
        if s["loss.rms"]:
            raw = torch.cat([g[3] for g in given])
            total = total + s["loss.rms"] * (raw.square().mean(-1).sqrt() - reader.rho).square().mean()
        if s["loss.scale"]:
            total = total + s["loss.scale"] * (self.params[f"to.{reader.letter}.gain"] - 1).square().sum()
        return total

    def autoencode(self, reader, given, contexts):
        nll = []
        for context, g in zip(contexts, given):
            row = context["text"][reader.letter]
            _, hidden = self.read(reader, g, AE, row)
            nll += F.cross_entropy(hidden @ reader.head.T, row[1:], reduction="none")
        return torch.stack(nll).mean()

    def contrast(self, z):
        half = self.M // 2
        a = F.normalize(torch.stack([x[:half].mean(0) for x in z]), dim=-1)
        b = F.normalize(torch.stack([x[half:].mean(0) for x in z]), dim=-1)
        score, same = a @ b.T / self.settings["loss.nce_temperature"], torch.arange(len(z))
        return (F.cross_entropy(score, same) + F.cross_entropy(score.T, same)) / 2

    def step_loss(self, contexts, step, seen=None):
        """The loss of the training step that is taken at `step`; seen: a dictionary for what evaluations look at."""
        s = self.settings
        ae = s["loss.ae"] != 0 and not (s["ae.until"] and step >= s["ae.until"])
        alone = s["loss.ae"] != 0 and step < s["ae.alone"]
        z = [self.encode(c) for c in contexts]
        total = 0.0
        for reader in self.readers:
            given, rows = [self.adapt(reader, x) for x in z], []
            task, nats = self.task(reader, given, contexts, lambda said, begin: rows.append((said, begin)))
            if not alone:
                total = total + task
            if ae or alone:
                total = total + (1 if alone else s["loss.ae"]) * self.autoencode(reader, given, contexts)
            total = total + self.size(reader, given)
            if seen is not None:
                seen[f"output.{reader.letter}.nats"] = torch.as_tensor(nats, dtype=torch.float64).detach().view(1)
                seen[f"output.{reader.letter}.nll"] = self.lay_out(reader, rows, contexts)
        if seen is not None:
            seen["output.z"] = torch.stack(z).flatten(1).detach()
        total = total / len(self.readers)
        return total + s["loss.nce"] * self.contrast(z) if s["loss.nce"] and self.M > 1 else total

    def lay_out(self, reader, rows, contexts):
        """-log p of answers at their places in (B*Q,n-1), 0 elsewhere."""
        rows = iter(rows)
        out = torch.zeros(len(contexts), self.settings["questions"], self.settings[f"{reader.letter}.length"] - 1, dtype=self.dtype)
        for b, context in enumerate(contexts):
            for i, q in enumerate(context["questions"]):
                if q and q[reader.letter]:
                    said, begin = next(rows)
                    out[b, i, begin - 1:len(said)] = said[begin - 1:]
        return out.flatten(0, 1)


# --- texts and questions ---------------------------------------------------------------------------------------------

def draw(rng, low, high):
    """A whole number from low to high, both possible."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def draw_ids(rng, n, ids):
    return torch.randint(0, ids, (n,), generator=rng)  # 0 is a token too, not padding alone


def draw_question(rng, s, x, text, extreme):
    """extreme 0: as long as can be; 1: no question before the answer. Else any."""
    n, ids = s[f"{x}.length"], s[f"{x}.ids"]
    answer = draw(rng, 1, n - 3)
    question = n - 2 - answer if extreme == 0 else 0 if extreme == 1 else draw(rng, 0, n - 2 - answer)
    body = torch.cat([draw_ids(rng, question, ids), draw_ids(rng, answer, ids), torch.tensor([EOS])])
    anchor = draw_ids(rng, draw(rng, 0, s[f"{x}.told"] - n - len(text) + 2), ids)
    return {"row": torch.cat([torch.tensor([BOS]), body]), "answer": 1 + question,
            "told": torch.cat([text[:-1], anchor, body])}  # with the text's BOS, without its EOS


def draw_contexts(rng, s, count, letters):
    """Texts that fill their places and some that do not, an empty one, and questions that are missing."""
    out = []
    for b in range(count):
        longest = b == 0
        c = {"bytes": torch.randint(1, 256, (s["bytes"] if longest else 0 if b == 1 else draw(rng, 1, s["bytes"]),), generator=rng),
             "sample": draw(rng, 0, s["contexts"] - 1), "kind": (b + draw(rng, 0, 2)) % 3, "text": {}, "questions": []}
        for x in letters:
            most = s[f"{x}.text"] - 2
            words = draw_ids(rng, most if longest else 0 if b == 1 else draw(rng, 1, most), s[f"{x}.ids"])
            c["text"][x] = torch.cat([torch.tensor([BOS]), words, torch.tensor([EOS])])
        have = s["questions"] if longest else draw(rng, 1, s["questions"])
        for i in range(s["questions"]):
            ask = {x: draw_question(rng, s, x, c["text"][x], (b + i) % 4) for x in letters}
            c["questions"].append(ask if i < have else None)
        out.append(c)
    return out


def lay_inputs(s, contexts, letters):
    """The inputs of a batch as the model's table has them."""
    B, Q = len(contexts), s["questions"]
    out = {"bytes": torch.zeros(B, s["bytes"]), "lengths": torch.tensor([len(c["bytes"]) for c in contexts]),
           "sample": torch.tensor([c["sample"] for c in contexts]), "kind": torch.tensor([c["kind"] for c in contexts])}
    for b, c in enumerate(contexts):
        out["bytes"][b, :len(c["bytes"])] = c["bytes"]
    for x in letters:
        n, m, t = (s[f"{x}.{key}"] for key in ("length", "text", "told"))
        tokens, labels, told, document = torch.zeros(B, Q, n), -torch.ones(B, Q, n), torch.zeros(B, Q, t), torch.zeros(B, Q, t)
        text, text_labels = torch.zeros(B, m), -torch.ones(B, m)
        for b, c in enumerate(contexts):
            row = c["text"][x]
            text[b, :len(row)], text_labels[b, 1:len(row)] = row, row[1:]
            for i, q in enumerate(c["questions"]):
                if not q:
                    continue
                row, begin = q[x]["row"], q[x]["answer"]
                tokens[b, i, :len(row)], labels[b, i, begin:len(row)] = row, row[begin:]
                whole = torch.cat([q[x]["told"], torch.zeros(n - len(row), dtype=torch.long)])  # its end is that of `tokens`
                told[b, i, t - len(whole):], document[b, i, t - len(whole):] = whole, 1
                assert torch.equal(told[b, i, t - (n - 1):], tokens[b, i, 1:])
        out.update({f"{x}.tokens": tokens, f"{x}.labels": labels, f"{x}.text": text, f"{x}.text_labels": text_labels,
                    f"{x}.text_length": torch.tensor([len(c["text"][x]) for c in contexts]), f"{x}.told": told,
                    f"{x}.told_document": document})
    return {name: x.int() for name, x in out.items()}


# --- the file --------------------------------------------------------------------------------------------------------

def make_reference(net, batches, steps):
    out, losses, optimizer = {}, [], None
    inputs = [lay_inputs(net.settings, contexts, "ab") for contexts in batches]
    for name in inputs[0]:
        out[f"input.{name}"] = torch.stack([x[name] for x in inputs]) if steps else inputs[0][name]
    net.step_loss(batches[0], net.settings["ae.alone"])  # makes all parameters
    for step in range(max(steps, 1)):
        seen = {} if step == 0 else None
        loss = net.step_loss(batches[step], step, seen)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out["output.loss"] = torch.tensor(losses[0], dtype=torch.float64)
            out.update({name: x.float() for name, x in seen.items()})
            for name, p in net.params.items():
                out[f"param.{name}"] = p.detach().float().clone()
                out[f"grad.{name}"] = (torch.zeros_like(p) if p.grad is None else p.grad).float().clone()
            for name, p in net.held.items():
                out[f"param.{name}"] = p.float()
            optimizer = against.make_optimizer(net)
        if steps:
            for p in net.params.values():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            against.apply_step(net, optimizer, step)
    if steps:
        out["output.losses"] = torch.tensor(losses, dtype=torch.float64)
    return out


def write(path, text, batch=4, steps=0, seed=1):
    settings = against.parse_settings(text, {**DEFAULTS, **against.TRAIN})
    if not settings["a.shape"]:
        settings.update({f"{x}.shape": settings[f"{x}.shape"] or CONFIG[x] for x in CONFIG})
    for x in "ab":
        length, text, told = (settings[f"{x}.{key}"] for key in ("length", "text", "told"))
        if length < 4 or text < 3 or told < length + text - 2:
            raise ValueError(f"{x}.length is at least 4, {x}.text 3, and {x}.told {x}.length + {x}.text - 2")
    settings["train.steps"] = max(steps, 1) if settings["train.steps"] == "auto" else settings["train.steps"]
    rng = torch.Generator().manual_seed(seed)
    net = Wire(settings, torch.float64, rng)
    batches = [draw_contexts(rng, settings, batch, "ab") for _ in range(max(steps, 1))]
    tensors = make_reference(net, batches, steps)
    against.write_file(path, "wire", settings, tensors)
    return net, tensors


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--out", "--file", required=True, help="the file to write (safetensors)")
    a.add_argument("--settings", default="", help='"key=value key=\'value with spaces\'", as for tenon')
    a.add_argument("--batch", type=int, default=4, help="contexts of a batch")
    a.add_argument("--steps", type=int, default=0, help="also train this many steps and store their losses")
    a.add_argument("--seed", type=int, default=1, help="of weights and data")
    args = a.parse_args()
    net, tensors = write(args.out, args.settings, args.batch, args.steps, args.seed)
    count = sum(p.numel() for p in net.params.values())
    print(f"{args.out}: {count} parameters, loss {tensors['output.loss']:.6f}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
