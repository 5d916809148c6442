"""What the peers of frozen language models share: Hugging Face networks with random weights, their attention, timing on either
device, the profile, and the service on standard input that gpu.py talks to.

Under torch.compile transformers' own `sdpa` makes a mask and repeats keys and values for every head. The attention here is
registered with transformers in its place: no mask and grouped heads for a prompt, which leaves torch its flash and cuDNN kernels,
and for one token one of three forms (DECODE), the fastest on the device.
Keep: sizes are those of our presets, number of parameters included; nothing in the timed part that the other side does not do."""
import json
import os
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is read from outside
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

try:
    import transformers
    from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig, Qwen2Config, StaticCache
except ImportError as error:
    sys.exit(f"error: {error}: these peers need transformers 5 (AttentionInterface, StaticCache)")
if int(transformers.__version__.split(".")[0]) < 5:
    sys.exit(f"error: transformers {transformers.__version__}: these peers need version 5 or later (rope_parameters of a configuration)")

GEMMS = ("gemm", "cutlass", "nvjet", "cublas", "xmma", "splitk", "gemv", "_mm_", "::mm", "addmm")
ATTENTION = ("flash", "fmha", "attention", "cudnn_generated", "flex")
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SHAPE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
TINY = (32, 3, 4, 2, 48, 71)

# our preset: configuration, its sizes in the order of SHAPE, the rest, parameters
MODELS = {
    "qwen2_5_0_5b": (Qwen2Config, (896, 24, 14, 2, 4864, 151936),
                     {"rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
                     494032768),
    "llama3_2_1b": (LlamaConfig, (2048, 16, 32, 8, 8192, 128256),
                    {"rms_norm_eps": 1e-5, "max_position_embeddings": 131072, "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 8192}},
                    1235814400),
}


# --- attention -------------------------------------------------------------------------------------------------------------

def one_grouped(q, k, v, position, scale):
    """The queries of a group as rows of one head, torch's kernel with a mask."""
    B, H, _, D = q.shape
    mask = (torch.arange(k.shape[2], device=q.device) <= position).view(1, 1, 1, -1).expand(B, k.shape[1], H // k.shape[1], -1)
    return F.scaled_dot_product_attention(q.view(B, k.shape[1], -1, D), k, v, attn_mask=mask, scale=scale).reshape(B, H, 1, D)


def one_products(q, k, v, position, scale):
    """Two batched products with a softmax between them."""
    B, H, _, D = q.shape
    z = (q.view(B, k.shape[1], -1, D) @ k.transpose(2, 3)).float() * scale
    z = z.masked_fill(torch.arange(k.shape[2], device=q.device) > position, -torch.inf)
    return (z.softmax(-1).to(v.dtype) @ v).reshape(B, H, 1, D)


def one_flex(q, k, v, position, scale):
    """torch's flex_attention, which cuts a long cache into pieces for more of the device; compiled alone."""
    from torch.nn.attention.flex_attention import flex_attention
    score = lambda z, b, h, i, j: torch.where(j <= position, z, -torch.inf)
    return flex_attention(q, k, v, score_mod=score, scale=scale, enable_gqa=True)


DECODE = {"grouped": one_grouped, "products": one_products, "flex": one_flex}
chosen = {"decode": one_grouped}


def peer_attention(module, q, k, v, mask, scaling=None, dropout=0.0, **more):
    """q (B,H,T,D); k, v (B,K,T,D), or of a static cache (B,K,L,D). T > 1: causal from the cache's beginning."""
    T = q.shape[2]
    if T > 1:
        y = F.scaled_dot_product_attention(q, k[:, :, :T], v[:, :, :T], is_causal=True, scale=scaling, enable_gqa=k.shape[1] != q.shape[1])
    else:
        position = more.get("position_ids")
        if position is None:
            raise RuntimeError(f"transformers {transformers.__version__} passes no position_ids to attention: the mask of a token needs them")
        y = chosen["decode"](q, k, v, position.reshape(-1)[0], scaling)
    return y.transpose(1, 2), None


AttentionInterface.register("peer", peer_attention)


def time_once(run, device, times=20):
    """Milliseconds of a call."""
    for _ in range(3):
        run()
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(times):
        run()
    synchronize(device)
    return 1e3 * (time.perf_counter() - begin) / times


def fastest(candidates, device):
    """(the name with the shortest time, all times or reasons). candidates: name -> a function that returns what to run."""
    times = {}
    for name, make in candidates.items():
        try:
            times[name] = round(time_once(make(), device), 4)
        except Exception as error:  # a kernel that this device or version lacks
            times[name] = f"{type(error).__name__}: {str(error).strip()[:80]}"
    works = {name: ms for name, ms in times.items() if not isinstance(ms, str)}
    if not works:
        raise RuntimeError(f"no attention works on {device}: {times}")
    return min(works, key=works.get), times


def choose_prompt_kernel(config, batch, length, dtype, device, backward):
    """Leaves torch the fastest of its attention kernels for this shape; on a CPU it has one."""
    if device != "cuda":
        return {}
    from torch.nn.attention import SDPBackend, sdpa_kernel
    heads, dim = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    q, k, v = (torch.randn(batch, n, length, dim, device=device, dtype=dtype, requires_grad=backward)
               for n in (heads, config.num_key_value_heads, config.num_key_value_heads))
    g = torch.randn_like(q)

    def make(backend):
        def run():
            with sdpa_kernel(backend):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            if backward:
                torch.autograd.grad(y, (q, k, v), g)
        return lambda: run

    name, times = fastest({"flash": make(SDPBackend.FLASH_ATTENTION), "cudnn": make(SDPBackend.CUDNN_ATTENTION)}, device)
    torch.backends.cuda.enable_flash_sdp(name == "flash")
    torch.backends.cuda.enable_cudnn_sdp(name == "cudnn")
    return {"attention": name, "attention_ms": times}


def choose_decode_kernel(config, batch, length, dtype, device, names=tuple(DECODE)):
    """Chooses the form of a token's attention: each compiled alone, over the caches of eight layers in turn, on a GPU as one graph."""
    heads, dim = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    q = torch.randn(batch, heads, 1, dim, device=device, dtype=dtype)
    caches = [torch.randn(2, batch, config.num_key_value_heads, length, dim, device=device, dtype=dtype) for _ in range(8)]
    position = torch.tensor(length - 1, device=device)

    def make(name):
        one = torch.compile(DECODE[name], dynamic=False, fullgraph=True)
        run = lambda: [one(q, k, v, position, dim ** -0.5) for k, v in caches]

        def record():
            run()
            if device != "cuda":
                return run
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run()
            return graph.replay
        return record

    name, times = fastest({name: make(name) for name in names}, device)
    chosen["decode"] = DECODE[name]
    return {"attention": name, "attention_ms": times}


# --- networks --------------------------------------------------------------------------------------------------------------

def make_model(name, device, dtype, attention="peer", tiny=False, seed=1):
    """Random weights, frozen, none of them changed by anything that follows."""
    make, sizes, rest, parameters = MODELS[name]
    config = make(**dict(zip(SHAPE, TINY if tiny else sizes)), tie_word_embeddings=True, **rest)
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    model = model.to(device).eval().requires_grad_(False)
    count = sum(p.numel() for p in model.parameters())
    if not tiny and count != parameters:
        raise RuntimeError(f"{name} has {count} parameters in transformers {transformers.__version__}, and {parameters} in our preset: compare the configurations")
    if model.lm_head.weight is not model.model.embed_tokens.weight or next(model.parameters()).dtype != dtype:
        raise RuntimeError(f"transformers {transformers.__version__} made {name} without a tied head in {dtype}")
    return model


def make_cache(model, capacity):
    cache = StaticCache(config=model.config, max_cache_len=capacity)
    if any(not torch.is_tensor(getattr(layer, "cumulative_length", None)) for layer in cache.layers):
        raise RuntimeError(f"StaticCache of transformers {transformers.__version__} keeps no tensor cumulative_length: the cache cannot be set back")
    return cache


def set_back(cache, length):
    """Forgets all but the first tokens, in place: compiled steps know the tensor by its address."""
    for layer in cache.layers:
        layer.cumulative_length.fill_(length)


# --- timing ----------------------------------------------------------------------------------------------------------------

def compiled(f, mode=None, **options):
    """mode "off" leaves it as it is; options are Inductor's, in the place of a mode."""
    if mode == "off":
        return f
    return torch.compile(f, dynamic=False, fullgraph=True, **({"options": options} if options else {"mode": mode}))


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def wall_times(run, times, device):
    """Milliseconds of each call, from a device at rest to a device at rest."""
    out = []
    for _ in range(times):
        synchronize(device)
        begin = time.perf_counter()
        run()
        synchronize(device)
        out.append(1e3 * (time.perf_counter() - begin))
    return out


def device_times(run, times, device):
    """Milliseconds of each of several calls that follow one another, on the device's clock."""
    if device != "cuda":
        return wall_times(run, times, device)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def profile(run, device, most=15):
    """Where the time of one call goes: share of products and attention, and the largest kernels."""
    cuda = device == "cuda"
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CUDA if cuda else kinds.CPU]) as p:
        run()
        synchronize(device)
    rows = [(e.key, e.self_device_time_total if cuda else e.self_cpu_time_total, e.count) for e in p.key_averages()]
    rows = sorted((row for row in rows if row[1] > 0), key=lambda row: -row[1])
    total = sum(t for _, t, _ in rows) or 1
    share = lambda words: round(sum(t for name, t, _ in rows if any(w in name.lower() for w in words)) / total, 4)
    return {"kernel_ms": round(total / 1e3, 3), "gemm_share": share(GEMMS), "attention_share": share(ATTENTION),
            "kernels": [{"kernel": name[:70], "ms": round(t / 1e3, 3), "calls": n, "share": round(t / total, 4)} for name, t, n in rows[:most]]}


def graphs_skipped():
    """Why Inductor recorded no CUDA graph although asked to: times would be those of launches."""
    from torch._dynamo.utils import counters
    skips = counters["inductor"].get("cudagraph_skips", 0)
    return {"graphs_skipped": skips} if skips else {}


def memory_fields(device):
    if device != "cuda":
        return {}
    return {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}


def serve(fields, device, run, times_of, profiled=None, calls=1, more=None):
    """fields: those of every line. `time N`: the median of times_of(run, N, device), each divided by calls; `profile`: one call of
    `profiled`, else of run. more() adds fields to a timing. The first line says that the peer is ready."""
    def put(line):
        print(json.dumps({**fields, **line, "torch": torch.__version__, "transformers": transformers.__version__}), flush=True)

    def rest():
        synchronize(device)
        if device == "cuda":
            torch.cuda.empty_cache()  # while others are timed, a peer holds what it must alone

    rest()
    put({"ready": True})
    for command in sys.stdin:
        words = command.split()
        if words[:1] == ["quit"]:
            return
        run()  # takes the memory again; an uncompiled peer has not run before
        run()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        if words[0] == "time":
            ms = [t / calls for t in times_of(run, int(words[1]), device)]
            q = statistics.quantiles(ms, n=4, method="inclusive") if len(ms) > 1 else ms * 3
            put({"value": round(statistics.median(ms), 5), "unit": "ms", "spread": round((q[2] - q[0]) / 2, 5), "steps": len(ms),
                 **memory_fields(device), **graphs_skipped(), **(more() if more else {})})
        else:
            put(profile(profiled or run, device))
        rest()


def add_arguments(a, forms):
    a.add_argument("--form", choices=forms, default=forms[0])
    a.add_argument("--mode", choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"), help="of torch.compile (default: by the form)")
    a.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    a.add_argument("--tiny", action="store_true", help="a network of a few thousand parameters in float32: does everything run?")
    a.add_argument("--time", type=int, metavar="N", help="time N calls and profile one, instead of waiting for commands")
    a.add_argument("--serve", action="store_true", help="wait for commands on standard input")
    a.add_argument("--check", action="store_true", help="compare with plain forms, tiny, in float32 on the CPU; ends with `N passed, N failed`")


def commands_of(args):
    """Without --serve the commands come from --time."""
    import io
    if not args.serve:
        sys.stdin = io.StringIO(f"time {args.time or 10}\nprofile\nquit\n")


def guarded(main):
    try:
        main()
    except (RuntimeError, ValueError, TypeError, ImportError, AttributeError) as error:
        sys.exit(f"error: {type(error).__name__}: {str(error).strip()[:1500]}")


class Checks:
    def __init__(self):
        self.results = []

    def __call__(self, name, worst, limit):
        self.results.append(worst <= limit)
        print(f"{'ok    ' if self.results[-1] else 'FAILED'} {name}: {worst:.2g} (limit {limit:g})", flush=True)

    def end(self):
        print(f"{sum(self.results)} passed, {len(self.results) - sum(self.results)} failed")
        sys.exit(0 if all(self.results) else 1)


def distance(a, b):
    """The largest difference over the largest entry."""
    return ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30)).item()
