"""Runs and checkpoints. Each begins as a valid one (GOOD/r: two checkpoints of four steps) and is changed in one place."""
import json
import os
import shutil

from artefacts import ESC, OUT, artefact, elf
from formats import (fifo, folder, link, read, replace, safetensors, safetensors_parts, sign, unix_socket, write, zstd_zeros)

FAR = "../../../outside"  # from inside the run
FARTHER = "../../../../outside"  # from inside a checkpoint
ALL = "*"
NEWEST = "step-4"


def run(d, good):
    shutil.copytree(f"{good}/r", f"{d}/r", symlinks=True)
    shutil.copy(f"{good}/t.txt", f"{d}/t.txt")  # its data
    return f"{d}/r"


def checkpoints(r):
    return [f"{r}/{name}" for name in ("step-2", "step-4")]


def config(r, change):
    text = read(f"{r}/config.yaml").decode()
    write(f"{r}/config.yaml", change(text))


def state(r, change):
    """state.json of both checkpoints, with checksums that are right."""
    for c in checkpoints(r):
        s = json.loads(read(f"{c}/state.json"))
        change(s)
        write(f"{c}/state.json", json.dumps(s))
        sign(c)


# --- a run that is a program --------------------------------------------------------------------------------------------------

CKPT = "inspect inspect-json verify prune prune-dry convert train-fresh"  # its checkpoints are in order; or it begins anew
READS = f"{CKPT} sample* chat eval* py bench-decode bench-inputs config-run train-config"  # and its settings


@artefact("run", "r", CKPT)
def config_names_a_program(d, good):
    r = run(d, good)
    elf(f"{d}/x.so", good)
    config(r, lambda t: t.replace("model: gpt", "model: ./x.so").replace("preset: gpt_tiny", 'preset: ""'))


@artefact("run", "r", CKPT)
def config_names_a_program_outside(d, good):
    config(run(d, good), lambda t: f"model: {OUT}/x.so\n" + t.split("\n", 2)[2])


@artefact("run", "r", "*")
def checkpoint_names_a_program(d, good):
    """The run's own settings are right: the weights' metadata must not matter."""
    r = run(d, good)
    elf(f"{d}/x.so", good)
    for c in checkpoints(r):
        header, data = safetensors_parts(f"{c}/model.safetensors")
        header["__metadata__"] = {"format": "tenon-model 1", "model": "./x.so", "settings": "dim=16"}
        write(f"{c}/model.safetensors", safetensors(header, data))
        sign(c)


# --- links --------------------------------------------------------------------------------------------------------------------
# What only reads may follow a link, or refuse it; what writes or removes never does.


@artefact("run", "r", ALL)
def run_with_linked_checkpoint(d, good):
    r = run(d, good)
    replace(f"{r}/step-2", link, f"{FAR}/r/step-2")


@artefact("run", "r", ALL)
def run_with_linked_newest(d, good):
    r = run(d, good)
    replace(f"{r}/{NEWEST}", link, f"{FAR}/r/{NEWEST}")


@artefact("run", "r", ALL)
def run_with_old_elsewhere(d, good):
    link(f"{run(d, good)}/old", f"{FAR}/folder")


@artefact("run", "r", ALL)
def run_with_own_old(d, good):
    """A folder of the user's that happens to have the name."""
    write(f"{run(d, good)}/old/diary.txt", "mine\n")


@artefact("run", "r", ALL)
def run_with_linked_temporary(d, good):
    link(f"{run(d, good)}/.tmp-1", f"{FAR}/folder")


@artefact("run", "r", ALL)
def run_with_temporary_of_links(d, good):
    r = run(d, good)
    write(f"{r}/.tmp-step-6-1/a", "a")
    link(f"{r}/.tmp-step-6-1/b", f"{FARTHER}/folder")


@artefact("run", "r", ALL)
def run_with_latest_elsewhere(d, good):
    r = run(d, good)
    for name in ("latest", "best"):
        replace(f"{r}/{name}", link, f"{FAR}/r/{NEWEST}")


@artefact("run", "r", ALL)
def run_with_latest_in_full(d, good):
    r = run(d, good)
    for name in ("latest", "best"):
        replace(f"{r}/{name}", link, os.path.realpath(f"{d}/{OUT}/r/{NEWEST}"))


@artefact("run", "r", ALL)
def run_with_latest_odd(d, good):
    r = run(d, good)
    replace(f"{r}/latest", link, "step-99999999999999999999")
    replace(f"{r}/best", link, "step--1")


def linked(name, target, ok=ALL):
    def make(d, good):
        r = run(d, good)
        replace(f"{r}/{name}", link, target)
    make.__name__ = "run_linked_" + name.replace("/", "_").replace("-", "_").replace(".", "_")
    artefact("run", "r", ok)(make)


linked("metrics.jsonl", f"{FAR}/secret")
linked("config.yaml", f"{FAR}/secret", CKPT)
linked(f"{NEWEST}/model.safetensors", f"{FARTHER}/m.safetensors")
linked(f"{NEWEST}/manifest.json", f"{FARTHER}/secret")
linked(f"{NEWEST}/state.json", "/dev/zero")
linked("step-2/state.safetensors", f"{FARTHER}/secret")


@artefact("run", "r", ALL)
def run_linked_metrics_csv(d, good):
    r = run(d, good)
    link(f"{r}/metrics.csv", f"{FAR}/secret")
    config(r, lambda t: t.replace("csv: false", "csv: true"))


@artefact("run", "r", "*")
def run_linked_lock_names(d, good):
    """Names that writers might use for what is not finished."""
    r = run(d, good)
    for name in (".tmp-config.yaml", "config.yaml.tmp", "latest.tmp", ".tmp-latest", "metrics.jsonl.tmp", "lock", ".lock"):
        link(f"{r}/{name}", f"{FAR}/secret")


# --- not files ----------------------------------------------------------------------------------------------------------------
# A file of the newest checkpoint that is something else: the older one may serve.


def odd(name, thing, ok):
    def make(d, good):
        r = run(d, good)
        replace(f"{r}/{name}", thing)
    make.__name__ = f"run_{thing.__name__}_" + name.replace("/", "_").replace("-", "_").replace(".", "_")
    artefact("run", "r", ok)(make)


def empty(path):
    write(path, b"")


for _thing in (fifo, folder, unix_socket, empty):
    odd("metrics.jsonl", _thing, ALL)
    odd("config.yaml", _thing, CKPT if _thing != empty else f"{CKPT} config-run train-config")
    odd(f"{NEWEST}/model.safetensors", _thing, ALL)
    odd(f"{NEWEST}/manifest.json", _thing, ALL)
odd(f"{NEWEST}/state.json", fifo, ALL)
odd(f"{NEWEST}/state.safetensors", fifo, ALL)
odd("latest", fifo, ALL)
odd(NEWEST, fifo, ALL)
odd(NEWEST, empty, ALL)


# --- contents -----------------------------------------------------------------------------------------------------------------


@artefact("run", "r", READS)
def state_with_counters_at_their_end(d, good):
    def change(s):
        most = (1 << 63) - 1
        for key in ("step", "tokens", "batch", "length", "seed"):
            s[key] = most
        s["best"].update(step=most, stale=most)
        s["guard"].update(applied=most, good=most, snapshot_applied=most, snapshot_step=most)
        s["data"].update(batches=most, epoch=most, index=most, offset=most, batch=most, documents=most, train=most)
    state(run(d, good), change)


@artefact("run", "r", READS)
def cursor_at_its_end(d, good):
    def change(s):
        most = (1 << 63) - 1
        s["data"].update(batches=most, epoch=most, index=most, offset=most)
    state(run(d, good), change)


@artefact("run", "r", ALL)
def state_of_impossible_times(d, good):
    def change(s):
        s["time"].update(seconds=1e308, working=-1e308)
        s["best"].update(heldout=-1e308)
        s["metrics"].update(loss=1e308, lr=1e308)
    state(run(d, good), change)


@artefact("run", "r", ALL)
def state_nested_3000(d, good):
    r = run(d, good)
    for c in checkpoints(r):
        write(f"{c}/state.json", b'{"a":' * 3000 + b"1" + b"}" * 3000)
        sign(c)


@artefact("run", "r", READS)
def state_of_15_mb(d, good):
    r = run(d, good)
    for c in checkpoints(r):
        write(f"{c}/state.json", b'{"a":[' + b"[]," * 5000000 + b"[]]}")
        sign(c)


@artefact("run", "r", "train-fresh config-run train-config prune*")
def manifest_names_a_secret(d, good):
    r = run(d, good)
    for c in checkpoints(r):
        secret = read(f"{d}/{OUT}/secret")
        sign(c, files={f"{FARTHER}/secret": {"bytes": len(secret), "xxh3": "0" * 32}})


@artefact("run", "r", "train-fresh config-run train-config prune*")
def manifest_names_in_full(d, good):
    r = run(d, good)
    for c in checkpoints(r):
        sign(c, files={"/etc/passwd": {"bytes": 0, "xxh3": "0" * 32}})


@artefact("run", "r", ALL)
def manifest_with_escapes(d, good):
    def change(m):
        m.update(tenon=ESC, time=f"{ESC}\nerror: false", settings=ESC)
        m["files"]["note" + ESC] = {"bytes": 4, "xxh3": ""}
    r = run(d, good)
    for c in checkpoints(r):
        name = "note" + ESC
        write(f"{c}/{name}", "mine")
        sign(c, change)


@artefact("run", "r", ALL)
def manifest_of_other_types(d, good):
    def change(m):
        m.update(tenon=None, time=["a"], settings=3, metrics=[], step=-1)
    r = run(d, good)
    for c in checkpoints(r):
        sign(c, change)


@artefact("run", "r", ALL)
def state_with_escapes(d, good):
    def change(s):
        s["settings"] = ESC
        s["data"]["kind"] = ESC
    state(run(d, good), change)


@artefact("run", "r", ALL)
def metrics_with_escapes(d, good):
    line = json.dumps({"step": 2, ESC: ESC, "loss": 1}, ensure_ascii=False)
    write(f"{run(d, good)}/metrics.jsonl", f'{line}\n\x1b[31m{{"step":3,"loss":"{ESC}"}}\n')


@artefact("run", "r", ALL)
def metrics_of_10_mb(d, good):
    write(f"{run(d, good)}/metrics.jsonl", b'{"step":2,"loss":"' + b"x" * 10000000 + b'"}\n{"step":4}')


@artefact("run", "r", ALL)
def metrics_nested_3000(d, good):
    write(f"{run(d, good)}/metrics.jsonl", b'{"step":' + b"[" * 3000 + b"]" * 3000 + b"}\n" + b"\x00" * 1000)


@artefact("run", "r", ALL)
def run_with_odd_names(d, good):
    r = run(d, good)
    for name in (ESC, "-rf", "step-00000000000000000002", "step-9223372036854775808", "step--4", "step-4 ", "step-\n", ".tmp-" + ESC):
        write(f"{r}/{name}/manifest.json", "{}")


@artefact("run", "r", CKPT)
def config_with_escapes(d, good):
    config(run(d, good), lambda t: t + f'"{ESC.encode().decode("latin-1").encode("unicode_escape").decode()}": 1\n')


@artefact("run", "r", READS)
def config_leads_outside(d, good):
    """Training it must not write there; sampling may read what it names as a tokenizer, and say that it is none."""
    config(run(d, good), lambda t: t.replace("run: r ", f"run: {OUT}/r ").replace("data: t.txt", f"data: {OUT}/t.txt"))


@artefact("run", "r", f"{CKPT} config-run train-config", also="train*=5 sample*=5 chat=5 eval*=5")
def config_of_another_size(d, good):
    config(run(d, good), lambda t: t.replace("dim: 16 ", "dim: 65536 ").replace("layers: 1 ", "layers: 500 "))


@artefact("run", "r", ALL)
def packed_checkpoint_bomb(d, good):
    r = run(d, good)
    write(f"{r}/{NEWEST}/model.safetensors.zst", zstd_zeros(1024, b"\x40" + bytes(7) + b"{" + b" " * 63))


@artefact("run", f"r/{NEWEST}", "*")
def checkpoint_beside_a_secret(d, good):
    """A checkpoint named by itself, whose run's settings lie one folder up."""
    r = run(d, good)
    link(f"{r}/{NEWEST}/old", f"{FARTHER}/folder")
