"""Folders of weights: Hugging Face."""
import json
import os
import struct

from artefacts import ESC, artefact, elf
from formats import fifo, safetensors, write

H = "hf"
W = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = {"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
          "intermediate_size": 8, "vocab_size": 256, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
LAYER = {"input_layernorm.weight": [8], "self_attn.q_proj.weight": [8, 8], "self_attn.k_proj.weight": [8, 8], "self_attn.v_proj.weight": [8, 8],
         "self_attn.o_proj.weight": [8, 8], "post_attention_layernorm.weight": [8], "mlp.gate_proj.weight": [8, 8], "mlp.up_proj.weight": [8, 8],
         "mlp.down_proj.weight": [8, 8]}


def shapes():
    return {"model.embed_tokens.weight": [256, 8], **{f"model.layers.0.{name}": s for name, s in LAYER.items()}, "model.norm.weight": [8]}


def tensors(of, kind="F32", size=4):
    header, at = {}, 0
    for name, s in of.items():
        n = size * s[0] * (s[1] if len(s) > 1 else 1)
        header[name] = {"dtype": kind, "shape": s, "data_offsets": [at, at + n]}
        at += n
    return safetensors(header, struct.pack("<f", 0.01) * (at // 4))


def folder(d, config=None, weights=None, index=None, **keys):
    """A small valid folder, but for what is given."""
    write(f"{d}/{H}/config.json", json.dumps({**CONFIG, **keys}) if config is None else config)
    if index is not None:
        write(f"{d}/{H}/{INDEX}", index if isinstance(index, (bytes, str)) else json.dumps({"weight_map": index}))
    for name, data in ({W: tensors(shapes())} if weights is None else weights).items():
        write(f"{d}/{H}/{name}", data)


def hf_artefact(ok=""):
    """make() returns what folder() is given."""
    def add(make):
        def put(d, good):
            folder(d, **make())
        put.__name__ = make.__name__
        artefact("weights", H, ok)(put)
        return make
    return add


def halves():
    """The tensors in two files, and where the index has them."""
    names = list(shapes())
    first, second = names[:5], names[5:]
    files = {"a.safetensors": tensors({n: shapes()[n] for n in first}), "b.safetensors": tensors({n: shapes()[n] for n in second})}
    return files, {n: "a.safetensors" if n in first else "b.safetensors" for n in names}


# --- config.json --------------------------------------------------------------------------------------------------------------


@artefact("weights", H)
def hf_config_is_a_program(d, good):
    folder(d)
    elf(f"{d}/{H}/config.json", good)


@artefact("weights", H)
def hf_config_is_a_fifo(d, good):
    folder(d)
    os.remove(f"{d}/{H}/config.json")
    fifo(f"{d}/{H}/config.json")


@hf_artefact()
def hf_config_deep():
    return {"config": "[" * 100000}


@hf_artefact()
def hf_config_long():
    return {"config": json.dumps({**CONFIG, "x": "y" * (2 << 20)})}


@hf_artefact()
def hf_config_many_values():
    return {"config": '{"x": [' + "[]," * 300000 + "0]}"}


@hf_artefact()
def hf_config_of_another_kind():
    return {"model_type": ESC}


@hf_artefact()
def hf_config_keys_of_the_terminal():
    return {"rope_scaling": {"type": "linear", "factor": 2, ESC: 1}}


@hf_artefact()
def hf_config_huge():
    return {"hidden_size": 65536, "num_attention_heads": 1024, "vocab_size": 10000000, "intermediate_size": 1000000, "num_hidden_layers": 1024}


@hf_artefact()
def hf_config_overflows():
    return {"hidden_size": (1 << 63) - 1}


@hf_artefact()
def hf_config_negative():
    return {"num_attention_heads": -2}


@hf_artefact()
def hf_config_lists_for_numbers():
    return {"num_hidden_layers": [1]}


@hf_artefact()
def hf_config_quantised():
    return {"quantization_config": {"quant_method": "bitsandbytes"}}


@hf_artefact()
def hf_config_of_remote_code():
    return {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "../../outside/x.so"}}


@hf_artefact()
def hf_config_nan():
    return {"config": json.dumps(CONFIG)[:-1] + ', "rope_theta": NaN}'}


# --- one file -----------------------------------------------------------------------------------------------------------------


@hf_artefact()
def hf_without_weights():
    return {"weights": {}}


@hf_artefact()
def hf_weights_of_pickle():
    return {"weights": {"pytorch_model.bin": b"\x80\x02cos\nsystem\n(S'touch $HOME/marker'\ntR."}}


@artefact("weights", H)
def hf_weights_are_a_fifo(d, good):
    folder(d, weights={})
    fifo(f"{d}/{H}/{W}")


@hf_artefact()
def hf_weights_cut():
    return {"weights": {W: tensors(shapes())[:-100]}}


@hf_artefact()
def hf_weights_of_bytes():
    return {"weights": {W: tensors(shapes(), "U8", 1)}}


@hf_artefact()
def hf_weights_with_more():
    return {"weights": {W: tensors({**shapes(), ESC: [8]})}}


# --- shards -------------------------------------------------------------------------------------------------------------------


@hf_artefact()
def hf_shard_with_a_path():
    files, index = halves()
    return {"weights": files, "index": {**index, "model.norm.weight": "../../../outside/m.safetensors"}}


@hf_artefact()
def hf_shard_with_an_absolute_path():
    files, index = halves()
    return {"weights": files, "index": {**index, "model.norm.weight": "/etc/passwd.safetensors"}}


@hf_artefact()
def hf_shard_of_the_terminal():
    files, index = halves()
    return {"weights": files, "index": {**index, "model.norm.weight": ESC + ".safetensors"}}


@hf_artefact()
def hf_shard_missing():
    files, index = halves()
    del files["b.safetensors"]
    return {"weights": files, "index": index}


@hf_artefact()
def hf_shard_twice():
    files, index = halves()
    return {"weights": {**files, "b.safetensors": files["a.safetensors"]}, "index": index}


@hf_artefact()
def hf_shard_overlapping():
    files, index = halves()
    return {"weights": {**files, "b.safetensors": tensors(shapes())}, "index": index}


@hf_artefact()
def hf_shards_by_the_thousand():
    return {"weights": halves()[0], "index": {f"t{i}": f"{i}.safetensors" for i in range(5000)}}


@hf_artefact()
def hf_index_of_many():
    return {"weights": halves()[0], "index": {f"t{i}": "a.safetensors" for i in range(150000)}}


@hf_artefact()
def hf_index_deep():
    return {"weights": {}, "index": "[" * 100000}


@artefact("weights", H)
def hf_index_is_a_fifo(d, good):
    folder(d, weights={})
    fifo(f"{d}/{H}/{INDEX}")
