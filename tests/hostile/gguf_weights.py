"""Files of weights: GGUF."""
import struct

from artefacts import ESC, artefact, elf
from formats import fifo, gguf, gguf_model, gguf_tensor, gguf_text, write

G = "m.gguf"
KEYS = {"general.architecture": "llama"}
MUCH = (1 << 64) - 1


def gguf_artefact(ok="", also=""):
    """make() returns the file's bytes."""
    def add(make):
        def put(d, good):
            write(f"{d}/{G}", make())
        put.__name__ = make.__name__
        artefact("weights", G, ok, also)(put)
        return make
    return add


# --- the frame ----------------------------------------------------------------------------------------------------------------


@artefact("weights", G)
def gguf_is_a_program(d, good):
    elf(f"{d}/{G}", good)


@artefact("weights", G)
def gguf_is_a_fifo(d, good):
    fifo(f"{d}/{G}")


@gguf_artefact()
def gguf_empty():
    return b""


@gguf_artefact()
def gguf_of_another_version():
    return gguf(KEYS, [], version=1)


@gguf_artefact()
def gguf_big_endian():
    return gguf(KEYS, [], version=3 << 24)


@gguf_artefact()
def gguf_cut():
    return gguf_model()[:-40]


@gguf_artefact()
def gguf_cut_in_its_header():
    return gguf_model()[:300]


@gguf_artefact()
def gguf_claims_tensors():
    return gguf(KEYS, [], counts=(MUCH, 1))


@gguf_artefact()
def gguf_claims_keys():
    return gguf(KEYS, [], counts=(0, MUCH))


@gguf_artefact()
def gguf_claims_allowed_counts():
    return gguf(KEYS, [], counts=(64000, 16000))


# --- keys ---------------------------------------------------------------------------------------------------------------------


@gguf_artefact()
def gguf_text_of_2_64():
    return gguf({"general.architecture": struct.pack("<IQ", 8, MUCH)}, [])


@gguf_artefact()
def gguf_list_of_2_62():
    return gguf({**KEYS, "a": struct.pack("<IIQ", 9, 4, 1 << 62)}, [], bytes(64))


@gguf_artefact()
def gguf_texts_of_2_61():
    return gguf({**KEYS, "a": struct.pack("<IIQ", 9, 8, 1 << 61)}, [], bytes(64))


@gguf_artefact()
def gguf_lists_in_lists():
    return gguf({**KEYS, "a": struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100000}, [])


@gguf_artefact()
def gguf_key_twice():
    raw = gguf_text("general.architecture") + struct.pack("<I", 8)
    return gguf({"general.architecture": struct.pack("<I", 8) + gguf_text("llama") + raw + gguf_text("qwen2")}, [], counts=(0, 2))


@gguf_artefact()
def gguf_type_of_a_key():
    return gguf({**KEYS, "a": struct.pack("<IQ", 255, 0)}, [])


@gguf_artefact()
def gguf_alignment_of_3():
    return gguf({**KEYS, "general.alignment": 3}, [gguf_tensor("a", [1])], bytes(64))


@gguf_artefact()
def gguf_alignment_of_0():
    return gguf({**KEYS, "general.alignment": 0}, [gguf_tensor("a", [1])], bytes(64))


@gguf_artefact()
def gguf_many_keys():
    return gguf({**KEYS, **{f"k{i}": 1 for i in range(15999)}}, [])


@gguf_artefact()
def gguf_with_escapes():
    return gguf({"general.architecture": ESC, ESC: ESC}, [gguf_tensor(ESC, [1])], bytes(64))


# --- tensors ------------------------------------------------------------------------------------------------------------------


@gguf_artefact()
def gguf_dims_overflow():
    return gguf(KEYS, [gguf_tensor("token_embd.weight", [1 << 32, 1 << 32, 1 << 32, 1 << 32])], bytes(64))


@gguf_artefact()
def gguf_rank_of_2_32():
    return gguf(KEYS, [gguf_tensor("a", [1], rank=(1 << 32) - 1)], bytes(64))


@gguf_artefact()
def gguf_tensor_of_nothing():
    return gguf(KEYS, [gguf_tensor("a", [8, 0])], bytes(64))


@gguf_artefact()
def gguf_unknown_type():
    return gguf(KEYS, [gguf_tensor("a", [256], 777)], bytes(1024))


@gguf_artefact()
def gguf_offset_outside():
    return gguf(KEYS, [gguf_tensor("a", [8], offset=1 << 63)], bytes(64))


@gguf_artefact()
def gguf_tensors_overlap():
    return gguf(KEYS, [gguf_tensor("a", [16]), gguf_tensor("b", [8], offset=32)], bytes(64))


@gguf_artefact()
def gguf_name_twice():
    return gguf(KEYS, [gguf_tensor("a", [8]), gguf_tensor("a", [8], offset=32)], bytes(64))


@gguf_artefact()
def gguf_many_tensors():
    return gguf(KEYS, [gguf_tensor(f"t{i}", [1], offset=32 * i) for i in range(20000)], bytes(32 * 20000))


# --- models -------------------------------------------------------------------------------------------------------------------


@gguf_artefact()
def gguf_of_no_model():
    return gguf({"a": 1}, [])


@gguf_artefact()
def gguf_of_another_architecture():
    return gguf_model(arch="mamba")


@gguf_artefact()
def gguf_claims_width():
    return gguf_model(dim=65536, heads=64, kv=64, real={"dim": 8, "heads": 2, "kv": 2})


@gguf_artefact()
def gguf_claims_layers():
    return gguf_model(layers=1024, real={"layers": 1})


@gguf_artefact()
def gguf_of_no_heads():
    return gguf_model(heads=0, real={"heads": 2})


@gguf_artefact()
def gguf_heads_are_a_list():
    return gguf_model(**{"llama.attention.head_count": [2, 2]})


@gguf_artefact()
def gguf_without_a_tensor():
    return gguf_model(without=("blk.0.ffn_up.weight",))


@gguf_artefact()
def gguf_with_another_tensor():
    return gguf_model(more=[("blk.0.attn_q_norm.weight", (4,))])


@gguf_artefact()
def gguf_scaled_positions():
    return gguf_model(more=[("rope_freqs.weight", (2,))])


@gguf_artefact()
def gguf_scaled_by_nothing_known():
    return gguf_model(**{"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0})


@gguf_artefact()
def gguf_scaled_by_nan():
    return gguf_model(**{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float("nan")})


@gguf_artefact()
def gguf_yarn_of_no_context():
    return gguf_model(**{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
                         "llama.rope.scaling.original_context_length": 0})


@gguf_artefact()
def gguf_yarn_of_infinite_beta():
    return gguf_model(**{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
                         "llama.rope.scaling.yarn_beta_fast": float("inf")})


@gguf_artefact()
def gguf_claims_wide_heads():
    return gguf_model(**{"llama.attention.key_length": 0xFFFFFFFE, "llama.attention.value_length": 0xFFFFFFFE})


@gguf_artefact()
def gguf_claims_other_heads():
    return gguf_model(**{"llama.attention.key_length": 1024, "llama.attention.value_length": 1024})


@gguf_artefact()
def gguf_without_its_norms():
    return gguf_model(arch="qwen3")


@gguf_artefact()
def gguf_base_is_nan():
    return gguf_model(**{"llama.rope.freq_base": float("nan")})


@gguf_artefact("*", also="chat*=5 eval-*=5")
def gguf_long_context():
    """A valid model; its cache may need more memory than there is."""
    return gguf_model(**{"llama.context_length": 1000000000})
