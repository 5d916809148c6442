#!/usr/bin/env python3
"""Small valid inputs for the fuzz targets, each in TO/TARGET/: seeds.py TO. From them fuzzers find their way."""
import gzip
import json
import os
import struct
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "hostile"))
from formats import gguf, gguf_model, gguf_tensor, idx, llama2c, model, npy, read, safetensors, wire, write, zstd_zeros  # noqa: E402

TOKEN = os.path.join(HERE, "..", "token")
STUDIES = os.path.join(HERE, "..", "..", "studies")
MINI = (b'{"added_tokens":[{"id":3,"content":"<|endoftext|>","special":true}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel",'
        b'"add_prefix_space":false,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE",'
        b'"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}')
MANIFEST = (b'{"format":"tenon-dataset","version":1,"kind":"tokens","item":"u16","vocab":256,"eot":-1,"tokenizer":{"kind":"bytes","hash":"0",'
            b'"file":""},"splits":{"train":{"documents":1,"tokens":4,"text_bytes":4,"shards":[{"file":"train-00000.bin","bytes":280,'
            b'"documents":1,"tokens":4,"hash":"00000000000000000000000000000000"}]}},"settings":"","fingerprint":"0"}')


def shard():
    """Four tokens of one document."""
    head = bytearray(256)
    struct.pack_into("<8s4I", head, 0, b"TNSHARD", 1, 1, 2, 0)
    struct.pack_into("<9Q", head, 24, 256, 0, 1, 4, 4, 256, 264, 280, 0)
    return bytes(head) + struct.pack("<4H", 1, 2, 3, 4) + struct.pack("<2Q", 0, 4)


def arrays_shard():
    head = bytearray(256)
    struct.pack_into("<8s4I", head, 0, b"TNSHARD", 1, 2, 1, 1)
    struct.pack_into("<9Q", head, 24, 0, 2, 2, 8, 0, 256, 264, 272, 0)
    struct.pack_into("<Q", head, 96, 4)
    return bytes(head) + bytes(8) + struct.pack("<2i", 0, 1)


def scaled():
    """Divisors of frequencies as Llama 3 has them."""
    return gguf_model(vocab=4, more=[("rope_freqs.weight", (2,))])[:-32] + struct.pack("<2f", 1, 1) + bytes(24)


def vocabulary(kind, pre, tokens, **more):
    """Types: 3 is a control token, 1 an ordinary one; kind llama has scores."""
    keys = {"model": kind, "tokens": tokens, "token_type": struct.pack("<IIQ", 9, 5, len(tokens)) + b"".join(struct.pack("<i", 3 if t[0] == "<" and len(t) > 1 else 1) for t in tokens)}
    if kind == "llama":
        keys["scores"] = struct.pack("<IIQ", 9, 6, len(tokens)) + b"".join(struct.pack("<f", -i) for i in range(len(tokens)))
    if pre:
        keys["pre"] = pre
    return gguf({"general.architecture": "llama", "tokenizer.chat_template": TEMPLATE, **{f"tokenizer.ggml.{k}": v for k, v in {**keys, **more}.items()}}, [])


TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
ASCII = [chr(b) if 33 <= b <= 126 else chr(0x100 + (b if b <= 32 else 0x21)) for b in range(128)]  # as byte-level BPE spells bytes
LETTERS = list("abcdefghijklmnopqrstuvwxyzT.,'0123456789")
BLOCKS = [(30, 1, 2), (1, 1, 2), (8, 32, 34), (2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (12, 256, 144), (13, 256, 176), (14, 256, 210)]  # type, values, bytes
one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
tiny = 8 * 8 + 8 + 4 * 64 + 8 + 3 * 64 + 8 + 16 * 4
HF = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 8, "vocab_size": 16,
      "max_position_embeddings": 32, "rope_theta": 10000.0}
Z = [(i * 7919 % 61 - 30) / 8 * (1 + i // 5) for i in range(15)]
SEEDS = {
    "safetensors": [b"\x00" + safetensors({"a": one}, bytes(4)), b"\x84" + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
                    b"\x00" + model("dim=16", tensors={"a": one}, data=bytes(4))],
    "tokenizer_json": [MINI, MINI.replace(b'"a b"', b'["a","b"]'), read(f"{TOKEN}/mini_llama3.json"), read(f"{TOKEN}/mini_llama2.json"),
                       read(f"{TOKEN}/mini_metaspace.json")],
    "sentencepiece": [b"\x0a\x09\x0a\x05<unk>\x18\x02\x0a\x03\x0a\x01a\x12\x02\x18\x02", read(f"{TOKEN}/mini_spm.model"), read(f"{TOKEN}/mini_rules.model")],
    "tiktoken": [b"YQ== 0\nYg== 1\nYWI= 2\n", read(f"{TOKEN}/mini.tiktoken")],
    "llama2c": [b"\x00" + llama2c(8, 8, 1, 2, 2, 8, 16, tiny), b"\x01" + read(f"{TOKEN}/mini_llama2c.bin"), b"\x02\x07\x07\x00\x01\x01\x07\x0fabc"],
    "gguf": [b"\x00" + gguf_model(vocab=4), b"\x00" + gguf_model(vocab=4, arch="qwen2", attention__sliding_window=8), b"\x01\x01\x00" + gguf_tensor("a", [32], 8),
             b"\x00" + gguf({"a": ["x", "yz"], "b": [1, 2], "c": 1.5, "general.alignment": 64}, [gguf_tensor("k", [256], 12), gguf_tensor("q", [256, 1], 14, 192)],
                            bytes(512), alignment=64),
             b"\x00" + scaled(), b"\x00" + gguf_model(vocab=4, rope__scaling__type="linear", rope__scaling__factor=2.0),
             b"\x00" + gguf_model(vocab=4, arch="qwen3", more=[("blk.0.attn_q_norm.weight", (4,)), ("blk.0.attn_k_norm.weight", (4,))], rope__scaling__type="yarn",
                                  rope__scaling__factor=4.0, rope__scaling__original_context_length=8, attention__key_length=4, attention__value_length=4),
             b"\x00" + gguf({}, [gguf_tensor(f"t{kind}", [values], kind, 256 * i) for i, (kind, values, _) in enumerate(BLOCKS)], bytes(range(256)) * len(BLOCKS))],
    "gguf_vocab": [vocabulary("gpt2", "smollm", ["<|im_start|>", "<|im_end|>", *ASCII, "th", "the"], merges=["t h", "th e"], eos_token_id=1, bos_token_id=0),
                   vocabulary("gpt2", "llama-bpe", ["<|eot_id|>", *ASCII, "ca"], merges=["c a"], eot_token_id=0),
                   vocabulary("llama", "", ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", *LETTERS, "\u2581th", "at"], eos_token_id=2, bos_token_id=1, unknown_token_id=0)],
    "hf": [b"\x00" + json.dumps({**HF, **more}).encode() for more in (
        {}, {"model_type": "qwen3", "head_dim": 4, "rope_scaling": {"type": "linear", "factor": 2.0}}, {"model_type": "mistral", "sliding_window": 8},
        {"model_type": "qwen2", "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0, "original_max_position_embeddings": 8, "mscale": 1.0}},
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}})]
    + [b'\x01{"metadata":{"total_size":1},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}', b'\x02{"eos_token_id":[1,2],"bos_token_id":0}', b'\x02{"eos_token_id":3}']
    + [b"\x03" + json.dumps(x).encode() for x in ({"eos_token": {"content": "<|im_end|>"}, "add_bos_token": False, "chat_template": TEMPLATE},
                                                  {"eos_token": "<|endoftext|>", "chat_template": [{"name": "tool", "template": "x"}, {"name": "default", "template": TEMPLATE}]})],
    "yaml_settings": [b"model: gpt\ndim: 16\ntrain: {steps: 2, lr: 1e-3}\nsample:\n  prompt: \"a\\nb\"\n", b"data: x.txt\nopt.norm: off\n"],
    "yaml_study": [read(os.path.join(STUDIES, name)) for name in sorted(os.listdir(STUDIES))],
    "jsonl": [b'\x00\x00{"text":"some text"}\n{"text":"more","loss":1}\n', b'\x01\x00["a",{"text":"b"}]', b"\x02\x01one\ntwo\n\nthree\n", b"\x02\x03 = A = \n\ntext\n",
              b"\x03\x00" + gzip.compress(b"packed text\n" * 9), b"\x04\x00" + zstd_zeros(1, b'{"text":"')],
    "tsv": [b"a\tb\nHe does n't say `` hi '' .\tThe girls ' dog ( a cat ) .\n", b"b\tx\ta\n9 : 30\t1\t-LRB- 50 % -RRB-\r\n", gzip.compress(b"a\tb\nx\ty\n")],
    "arrays": [b"\x00" + npy("(2, 3)", data=bytes(24)), b"\x00" + npy("(4,)", "<i8", bytes(32)), b"\x01" + idx([2, 2, 2], bytes(8)), b"\x02a,b,c\n1,2,0\n3.5,-4e2,1\n"],
    "shards": [b"\x00" + shard(), b"\x00" + arrays_shard(), b"\x01" + MANIFEST],
    "wire": [b"\x00" + wire(Z, 1, 5, private=1, models=2, bits=16), b"\x01" + wire(Z, 3, 5, bits=6, group=4), b"\x02" + wire(Z, 3, 5, bits=4, group=5, scale="f32"),
             b"\x03" + wire(Z, 1, 5, private=1, models=2, bits=4, group=32) + wire(Z, 15, 1, bits=8) + wire(Z[:1], 1, 1, bits=6), b"\x05" + wire(Z, 3, 5, group=1, scale="f32"),
             b"\x06\x01\x04\x00\x01\x02\x05" + struct.pack("<15f", *Z), b"\x07\x03\x20\x04\x00\x00\x01" + struct.pack("<4f", 0, 1e-40, 3e38, -7.5)],
    "metrics": [b'\x04{"step":2,"loss":5.5,"lr":1e-4}\n{"step":4,"loss":"NaN","note":"a,\\"b"}\n{"step":6'],
}

if __name__ == "__main__":
    to = sys.argv[1]
    for target, seeds in SEEDS.items():
        for i, seed in enumerate(seeds):
            write(f"{to}/{target}/seed{i}", seed)
