"""A small GGUF model for chat.case: chat_model.py TEMPLATE FILE. Bytes and ChatML's two markers are its tokens."""
import struct, sys
text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
key = lambda k, kind, v: text(k) + struct.pack("<I", kind) + v
many = lambda kind, items: struct.pack("<IQ", kind, len(items)) + b"".join(items)
shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
rest = [b for b in range(256) if b not in shown]
tokens = [chr(b) if b in shown else chr(256 + rest.index(b)) for b in range(256)] + ["<|im_start|>", "<|im_end|>"]
d, v, context = 8, len(tokens), 256
u32 = lambda x: struct.pack("<I", x)
template = sys.argv[1].replace("\\n", "\n")
keys = [key("general.architecture", 8, text("llama")), key("llama.embedding_length", 4, u32(d)), key("llama.block_count", 4, u32(1)), key("llama.attention.head_count", 4, u32(2)),
        key("llama.feed_forward_length", 4, u32(d)), key("llama.context_length", 4, u32(context)), key("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        key("tokenizer.ggml.model", 8, text("gpt2")), key("tokenizer.ggml.pre", 8, text("gpt-2")), key("tokenizer.ggml.tokens", 9, many(8, [text(t) for t in tokens])),
        key("tokenizer.ggml.token_type", 9, many(5, [u32(1)] * 256 + [u32(3)] * 2)), key("tokenizer.ggml.merges", 9, many(8, [])), key("tokenizer.ggml.eos_token_id", 4, u32(257)),
        key("tokenizer.chat_template", 8, text(template))]
shapes = [("token_embd.weight", (d, v)), ("output_norm.weight", (d,)), ("blk.0.attn_norm.weight", (d,)), ("blk.0.ffn_norm.weight", (d,))]
shapes += [(f"blk.0.{n}.weight", (d, d)) for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")]
infos, data = b"", b""
for name, s in shapes:
    infos += text(name) + u32(len(s)) + struct.pack(f"<{len(s)}Q", *s) + u32(0) + struct.pack("<Q", len(data))
    n = s[0] * (s[1] if len(s) > 1 else 1)
    data += struct.pack(f"<{n}f", *(((i * 37 + len(name)) % 101 - 50) / 50 for i in range(n)))
    data += bytes(-len(data) % 32)
head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + infos
open(sys.argv[2], "wb").write(head + bytes(-len(head) % 32) + data)
