"""Messages of `tenon wire encode`, each a valid one (GOOD/message.wire, of the run GOOD/w) that is changed in one place; checksums are right
where nothing else is said."""
import struct
import zlib

from artefacts import ESC, artefact
from formats import fifo, folder, read, wire, write


def good_one(good):
    return read(f"{good}/message.wire")


def sealed(head, payload):
    """With both checksums made right."""
    head = bytes(head[:44])
    return head + struct.pack("<I", zlib.crc32(head)) + payload + struct.pack("<I", zlib.crc32(head + payload))


def changed(raw, at, form, value):
    head = bytearray(raw[:48])
    struct.pack_into(form, head, at, value)
    return sealed(head, raw[48:-4])


def put(name, make, ok=""):
    """An artefact NAME whose message is make(valid one)."""
    def write_it(d, good):
        write(f"{d}/m", make(good_one(good)))
    write_it.__name__ = name
    artefact("message", "m", ok)(write_it)


put("message_empty", lambda m: b"")
put("message_cut_in_header", lambda m: m[:20])
put("message_cut_in_payload", lambda m: m[:-9])
put("message_cut_by_a_byte", lambda m: m[:-1])
put("message_cut_behind_a_whole_one", lambda m: m + m[:60])
put("message_with_a_byte_more", lambda m: m + b"x")
put("message_flipped_in_header", lambda m: m[:30] + bytes([m[30] ^ 1]) + m[31:])
put("message_flipped_in_payload", lambda m: m[:60] + bytes([m[60] ^ 0x40]) + m[61:])
put("message_of_another_encoder", lambda m: changed(m, 8, "<16s", bytes(16)))
put("message_of_version_2", lambda m: changed(m, 4, "<H", 2))
put("message_of_3_bits", lambda m: changed(m, 6, "<B", 3))
put("message_of_2_31_slots", lambda m: changed(m, 24, "<I", 1 << 31))
put("message_of_many_shared_slots", lambda m: sealed(m[:24] + struct.pack("<IIIHHI", 1 << 31, 1 << 31, 0, 0, 32, 8), m[48:-4]))
put("message_of_no_width", lambda m: changed(m, 40, "<I", 0))
put("message_of_other_slots", lambda m: wire([0.5] * 16, 4, 4, encoder=m[8:24]))
put("message_of_nan_scales", lambda m: sealed(m, struct.pack("<e", float("nan")) + m[50:-4]))
put("message_of_negative_scales", lambda m: sealed(m, struct.pack("<e", -1.0) + m[50:-4]))
put("message_of_fp16_infinity", lambda m: wire([0] * 16, 2, 8, bits=16, encoder=m[8:24], payload=struct.pack("<e", float("inf")) * 16))
put("message_of_text", lambda m: (ESC + "\n").encode("latin-1") * 30)
put("message_of_zeros", lambda m: bytes(1 << 20))


@artefact("message", "m")
def message_is_a_pipe(d, good):
    fifo(f"{d}/m")


@artefact("message", "m")
def message_is_a_folder(d, good):
    folder(f"{d}/m")
