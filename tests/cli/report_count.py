"""report_count.py gpt|ten|tep [metrics.jsonl] < `tenon report --json`: FLOPs and bytes of its rows counted again, from settings and shapes alone,
within 1 %; of tep's solves with the evaluations that a training of the same settings counted in its metrics. A multiplication and an addition
are two FLOPs, an exponential or a root ten; bytes are those of the arguments and results of an op, each once, in f32."""
import json
import sys

B, T, V, d, heads, ffn = 4, 32, 1000, 64, 2, 192  # as the case sets them
SAMPLES, BITS, CLASSES, WIDTH = 64, 8, 2, 16  # of tep
N, D = B * T, d // heads
hidden = N * d
rows, expected = {}, {}
for line in sys.stdin:
    row = json.loads(line)
    if row.get("group") == "op": rows[row["name"], row["region"], row["pass"]] = row["flops"], row["bytes"]


def op(flops, numbers, flops_back=0, numbers_back=0):
    """Forward and backward: FLOPs, and numbers that it reads or writes, in bytes."""
    return (flops, 4 * numbers), (flops_back, 4 * numbers_back)


def product(inside, outside, rows=N, bias=False, dx=True):
    """A linear layer: forward x w, backward dx and dw; arguments x, w, y, and dy, x, w, dx, dw."""
    f, x, w, y, b = 2 * rows * inside * outside, rows * inside, inside * outside, rows * outside, outside if bias else 0
    return op(f, x + w + y + b, (1 + dx) * f, y + x + w + b + dx * (x + w))


def expect(name, region, *parts):
    for k, direction in enumerate(("forward", "backward")):
        counted = tuple(sum(p[k][i] for p in parts) for i in (0, 1))
        if counted != (0, 0): expected[name, region, direction] = counted


norm = op(4 * hidden, 2 * hidden + d + N, 10 * hidden, 3 * hidden + 2 * d + N)  # one number a row is kept
summed = op(0, 2 * hidden, 0, hidden)  # the sum that a norm makes on its way, and its gradient
feed_forward = product(d, 2 * ffn), product(ffn, d)
gated = op(2 * N * ffn, 3 * N * ffn, 5 * N * ffn, 5 * N * ffn)


def language(layers):
    for k in range(layers):
        expect("linear", f"layer{k}.ffn", *feed_forward)
        expect("gate", f"layer{k}.ffn", gated)
        expect("norm", f"layer{k}", norm, norm, summed, *([summed] if k else []))  # the embedding is a sum of nothing
    expect("norm", "", norm, op(0, 2 * hidden))  # nothing but the head reads it
    # Rows of the table that are looked up, not the table; the gradient is added to.
    expect("embed", "", op(0, N + 2 * hidden, hidden, N + 2 * hidden))
    expect("linear_xent", "head", op(0, 0, 6 * N * d * V + 3 * N * V, 2 * hidden + 2 * V * d + N))
    expect("copy", "", op(0, 2))


def gpt():
    language(1)
    pairs = B * heads * T * (T + 1) // 2  # what a causal mask leaves of scores
    saved = N * heads  # a logsumexp for each row
    expect("linear", "layer0.attn", product(d, 3 * d), product(d, d))
    expect("attention", "layer0.attn", op(4 * D * pairs, 4 * hidden + saved, 10 * D * pairs, 8 * hidden + saved))
    expect("rope", "layer0.attn", *2 * [op(3 * hidden, 2 * hidden, 3 * hidden, 2 * hidden)])


def conv(channels, taps=4):
    """Causal, with the last tokens as the state behind it."""
    n, w = N * channels, taps * channels
    return op(2 * n * taps, 2 * n + w + B * (taps - 1) * channels, 4 * n * taps, 3 * n + 2 * w)


def readout(parameters, each):
    """c, x, z and y, and parameters by column."""
    return op(each * hidden, 4 * hidden + parameters * d, 3 * each * hidden, 7 * hidden + 2 * parameters * d)


def ten():
    language(2)
    # D: K complex states, x and z of each in one product, gates (a bias; kept as they are before the sigmoid), and back.
    K = d // 2
    sigmoid = op(0, N * 2 * K + 2 * K, 0, N * 2 * K + 2 * K)
    expect("linear", "layer0.mixer", product(d, 4 * K), product(d, 2 * K), product(2 * K, d), sigmoid)
    expect("conv_causal", "layer0.mixer", conv(2 * K))
    gate = 1 + 10 + 2 + 10 + 1 + 2  # r softplus(nu), its exponential, 1 - rho^2, the root, times i, times x
    turn = 2 + 6 + 2  # rho e^{i omega}, times the state, plus what comes in
    back = 2 * turn + gate + 12  # the scan from behind, what the gates' slopes read, and the slopes
    expect("scan_gated", "layer0.mixer", op(N * K * (gate + turn), 3 * hidden + 2 * K + B * 2 * K, N * K * back, 6 * hidden + 4 * K))
    expect("readout", "layer0.mixer", readout(1, 4))
    # O: a matrix (D,D) for each head; tokens of a chunk (here the whole sequence) see each other, and all are written to the state.
    seen = (T + 1) / 2
    expect("linear", "layer1.mixer", product(d, 4 * d), product(d, 2 * heads, bias=True), product(d, d))
    expect("conv_causal", "layer1.mixer", conv(3 * d))
    expect("outer", "layer1.mixer", op(2 * N * heads * (seen * 2 * D + D * D), 4 * hidden + N * heads + B * heads * D * D,
                                       2 * N * heads * (seen * 5 * D + 3 * D * D), 7 * hidden + 2 * N * heads))
    each = N * heads  # decay and strength of writing: softplus, minus, sigmoid; silu of q, k and v
    expect("unary", "layer1.mixer", op(3 * hidden + 3 * each, 2 * (3 * hidden + 3 * each), 3 * hidden + 3 * each, 9 * hidden + 8 * each))
    expect("binary", "layer1.mixer", op(hidden, 2 * hidden + each, hidden, 3 * hidden + 2 * each))
    expect("readout", "layer1.mixer", readout(2, 8))


def tep(metrics):
    """A block whose samples are solved, then nudged up and down; every evaluation is two products, a nudge the head's two as well."""
    w, f, n = WIDTH, 4 * WIDTH, SAMPLES
    last = [json.loads(x) for x in open(metrics)][-1]
    free, nudged = last["evaluations"], last["nudged_evaluations"]
    two, head = 4 * w * f, 4 * w * CLASSES
    expect("linear", "embed", product(BITS, w, n, bias=True, dx=False))
    expect("linear", "attn", *2 * [product(w, w, n, bias=True)])
    expect("fill", "solve", op(0, n * w + n))
    expect("binary", "solve", op(n + 1, 2 * n + 1 + 3))
    weights, of_head = 2 * w * f + f + w + 4 * w, w * CLASSES + CLASSES  # of the map, with two norms
    shared = n * w + weights + of_head + 2 * n + 4  # a; labels and weights; rtol, damping, beta, count
    # Back: the map at the equilibrium and the gradients by state and weights; both nudges begin with that map.
    expect("relax", "solve", op(free * two, shared + 2 * n * w + 4 * n, nudged * (two + head) + (3 - 2) * n * two,
                                shared + 2 * n * w + 2 * n + n * w + weights))
    expect("linear_xent", "head", op(0, 0, n * CLASSES * (6 * w + 3), 2 * n * w + 2 * of_head + n))
    expect("copy", "", op(0, 2))


{"gpt": gpt, "ten": ten, "tep": tep}[sys.argv[1]](*sys.argv[2:])
for key, (flops, size) in expected.items():
    has = rows.get(key)
    far = [abs(a - b) / max(b, 1) for a, b in zip(has or (0, 0), (flops, size)) if a is not None]
    if len(far) < 2 or max(far) > 0.01 or (has is None and flops): print(*key, "is", has, "and not", (flops, size))
for key in rows.keys() - expected.keys(): print(*key, "is counted nowhere else:", rows[key])
print(len(expected), "rows,", "all of it" if expected.keys() == rows.keys() else "not all of it")
