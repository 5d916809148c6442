"""Files of weights: safetensors and llama2.c."""
import json
import struct

from artefacts import ESC, OUT, artefact, elf
from formats import (TINY, fifo, folder, link, llama2c, model, read, safetensors, safetensors_parts, unix_socket, write,
                     zstd_zeros)

M = "m.safetensors"
LOOK = "inspect inspect-json verify convert convert-packed"  # its tensors are in order: only the model is not


def f32(*shape, at=0):
    n = 4
    for d in shape:
        n *= d
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + n]}


# --- a model that is a program ------------------------------------------------------------------------------------------------


@artefact("weights", M, LOOK)
def weights_name_a_program(d, good):
    elf(f"{d}/x.so", good)
    write(f"{d}/{M}", model(TINY, "./x.so"))


@artefact("weights", M, LOOK)
def weights_name_a_program_as_data(d, good):
    elf(f"{d}/vocab.bin", good)
    write(f"{d}/{M}", model("vocab=256", "./vocab.bin"))


@artefact("weights", M, LOOK)
def weights_name_a_program_outside(d, good):
    write(f"{d}/{M}", model(TINY, f"{OUT}/x.so"))


@artefact("weights", M, LOOK)
def weights_name_a_program_in_full(d, good):
    elf(f"{d}/x.so", good)
    write(f"{d}/{M}", model(TINY, f"{d}/x.so"))


@artefact("weights", M, LOOK)
def weights_name_a_program_in_settings(d, good):
    elf(f"{d}/x.so", good)
    write(f"{d}/{M}", model(f"{TINY} model=./x.so preset=./x.so"))


@artefact("weights", M, LOOK)
def weights_name_no_program(d, good):
    write(f"{d}/{M}", model(TINY, f"{OUT}/nothing/here"))


@artefact("weights", M)
def weights_are_a_program(d, good):
    elf(f"{d}/{M}", good)


@artefact("weights", "m.bin")
def llama2c_is_a_program(d, good):
    elf(f"{d}/m.bin", good)


# --- claims -------------------------------------------------------------------------------------------------------------------


@artefact("weights", M, LOOK)
def weights_claim_much(d, good):
    """205 bytes."""
    write(f"{d}/{M}", model("dim=16384 layers=12 heads=8 vocab=50257", tensors={"a": f32(1)}, data=bytes(4)))


@artefact("weights", M, LOOK)
def weights_claim_many_layers(d, good):
    write(f"{d}/{M}", model("dim=16 layers=1000000 heads=1 vocab=256"))


@artefact("weights", M, LOOK, also="chat*=5")
def weights_claim_context(d, good):
    write(f"{d}/{M}", model("dim=16 layers=1 heads=1 vocab=256 train.context=1000000000"))


@artefact("weights", M, LOOK)
def weights_claim_vocabulary(d, good):
    write(f"{d}/{M}", model("dim=16 layers=1 heads=1 vocab=1000000000"))


@artefact("weights", M, LOOK)
def weights_claim_state(d, good):
    write(f"{d}/{M}", model("dim=8192 layers=2 heads=64 vocab=65536", "ten"))


@artefact("weights", M)
def header_beyond_the_file(d, good):
    write(f"{d}/{M}", safetensors({"a": f32(1)}, bytes(4), length=1 << 20))


@artefact("weights", M)
def header_of_2_63(d, good):
    write(f"{d}/{M}", safetensors({"a": f32(1)}, bytes(4), length=(1 << 63) + 7))


@artefact("weights", M)
def header_of_minus_1(d, good):
    write(f"{d}/{M}", b"\xff" * 8 + b"{}")


@artefact("weights", M)
def tensors_overlap(d, good):
    write(f"{d}/{M}", safetensors({"a": f32(4), "b": f32(4, at=8)}, bytes(24)))


@artefact("weights", M)
def tensors_with_a_hole(d, good):
    write(f"{d}/{M}", safetensors({"a": f32(1), "b": f32(1, at=64)}, bytes(68)))


@artefact("weights", M)
def tensors_beyond_the_file(d, good):
    write(f"{d}/{M}", safetensors({"a": f32(1 << 20)}, bytes(4)))


@artefact("weights", M)
def offsets_backwards(d, good):
    write(f"{d}/{M}", safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, bytes(4)))


@artefact("weights", M)
def header_with_equal_keys(d, good):
    one = json.dumps(f32(1))
    write(f"{d}/{M}", safetensors(f'{{"a":{one},"a":{one}}}'.encode(), bytes(4)))


@artefact("weights", M)
def shape_of_a_million_dimensions(d, good):
    write(f"{d}/{M}", safetensors({"a": f32(*[1] * 1000000)}, bytes(4)))


@artefact("weights", M)
def shape_that_overflows(d, good):
    big = {"dtype": "F32", "shape": [1 << 32, 1 << 32, 4], "data_offsets": [0, 0]}
    write(f"{d}/{M}", safetensors({"a": big}))


@artefact("weights", M)
def shape_below_zero(d, good):
    write(f"{d}/{M}", safetensors({"a": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}}, bytes(16)))


@artefact("weights", M)
def header_nested_3000(d, good):
    write(f"{d}/{M}", safetensors(b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}"))


@artefact("weights", M, LOOK)
def header_of_24_mb(d, good):
    """Many small tensors: each costs the reader more than its text."""
    text = b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % i for i in range(430000))
    write(f"{d}/{M}", safetensors(b"{" + text + b"}"))


@artefact("weights", M)
def header_of_brackets(d, good):
    """16 MB of empty lists: one character each costs a value."""
    write(f"{d}/{M}", safetensors(b'{"a":[' + b"[]," * 5400000 + b"[]]}"))


@artefact("weights", M, LOOK)
def metadata_of_many_settings(d, good):
    write(f"{d}/{M}", model(" ".join(f"key{i}=1" for i in range(20000))))


# --- what is inside -----------------------------------------------------------------------------------------------------------


@artefact("weights", M, f"{LOOK} config bench-decode bench-inputs chat eval eval-positions", also="sample*=4 eval*=4 py=4")
def weights_of_nan(d, good):
    header, data = safetensors_parts(f"{good}/m.safetensors")
    write(f"{d}/{M}", safetensors(header, b"\x00\x00\xc0\x7f" * (len(data) // 4)))


@artefact("weights", M, LOOK)
def tensor_names_with_escapes(d, good):
    names = [ESC, "../../outside/secret", "/etc/passwd", "a\nerror: false", "a\rb", "-rf", "\x7f", ""]
    tensors = {name: f32(1, at=4 * i) for i, name in enumerate(names)}
    write(f"{d}/{M}", model(TINY, tensors=tensors, data=bytes(4 * len(names))))


@artefact("weights", M, LOOK)
def metadata_with_escapes(d, good):
    write(f"{d}/{M}", model(f"dim={ESC} {ESC}=1 layers={ESC}", ESC, **{ESC: ESC}))


@artefact("weights", M, f"{LOOK} config bench-decode bench-inputs")
def settings_lead_outside(d, good):
    """Valid weights whose settings name files and a run elsewhere: nothing is written there."""
    header, data = safetensors_parts(f"{good}/m.safetensors")
    header["__metadata__"]["settings"] += f" data={OUT}/secret tokenizer={OUT}/secret run={OUT}/r task.data={OUT}/secret"
    write(f"{d}/{M}", safetensors(header, data))


@artefact("weights", M)
def metadata_of_another_kind(d, good):
    write(f"{d}/{M}", safetensors({"__metadata__": {"format": ["tenon-model 1"], "model": {"a": 1}}, "a": f32(1)}, bytes(4)))


# --- not a file ---------------------------------------------------------------------------------------------------------------


@artefact("weights", M)
def weights_empty(d, good):
    write(f"{d}/{M}", b"")


@artefact("weights", M)
def weights_are_a_fifo(d, good):
    fifo(f"{d}/{M}")


@artefact("weights", M)
def weights_are_a_folder(d, good):
    folder(f"{d}/{M}")


@artefact("weights", M)
def weights_are_a_socket(d, good):
    unix_socket(f"{d}/{M}")


@artefact("weights", M)
def weights_are_endless(d, good):
    link(f"{d}/{M}", "/dev/zero")


@artefact("weights", M)
def weights_are_a_link_to_itself(d, good):
    link(f"{d}/{M}", M)


@artefact("weights", M)
def weights_link_to_a_secret(d, good):
    link(f"{d}/{M}", f"{OUT}/secret")


# --- packed -------------------------------------------------------------------------------------------------------------------


@artefact("weights", f"{M}.zst")
def packed_weights_bomb(d, good):
    lead = struct.pack("<Q", 64) + b'{"a":{"dtype":"U8","shape":[1073741824],"data_offsets":[0,1073741824]}}'
    write(f"{d}/{M}.zst", zstd_zeros(1024, lead))


@artefact("weights", f"{M}.zst")
def packed_weights_damaged(d, good):
    write(f"{d}/{M}.zst", b"\x28\xb5\x2f\xfd\x00\xf8" + b"\xff" * 400)


# --- llama2.c -----------------------------------------------------------------------------------------------------------------


@artefact("weights", "m.bin")
def llama2c_of_2_31(d, good):
    most = (1 << 31) - 1
    write(f"{d}/m.bin", llama2c(most, most, most, most, most, most, most, 64))


@artefact("weights", "m.bin")
def llama2c_below_zero(d, good):
    low = -(1 << 31)
    write(f"{d}/m.bin", llama2c(low, low, low, low, low, low, low, 64))


@artefact("weights", "m.bin")
def llama2c_of_no_heads(d, good):
    write(f"{d}/m.bin", llama2c(16, 16, 1, 0, 0, 256, 16, 64))


@artefact("weights", "m.bin")
def llama2c_long_context(d, good):
    write(f"{d}/m.bin", llama2c(2, 2, 1, 1, 1, 2, 1000000000, 64))


@artefact("weights", "m.bin")
def llama2c_cut(d, good):
    write(f"{d}/m.bin", read(f"{good}/m.bin")[:-100])
