"""trace_hta.py TRACE.json[.gz] [BUSY]: whether spans of a track of `--trace=FILE` overlap without nesting, and, where HolisticTraceAnalysis
(PyPI) is installed, whether its busy share is within a point of ours, BUSY per cent. Ends with 1 where one of both does not hold."""
import collections
import gzip
import importlib.util
import json
import os
import shutil
import sys
import tempfile

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # rounded to whole microseconds, spans of kernels overlap and it gives up

WITHIN = 1.0  # points


def overlaps(path):
    """Spans by track, those that end behind the one around them."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
        events = json.load(f)["traceEvents"]
    tracks = collections.defaultdict(list)
    for e in events:
        if e.get("ph") == "X":
            tracks[e["pid"], e["tid"]].append((e["ts"], -e.get("dur", 0)))
    wrong = 0
    for spans in tracks.values():
        around = []
        for begin, less in sorted(spans):
            end = begin - less
            while around and around[-1] <= begin + 1e-3:
                around.pop()
            wrong += bool(around) and end > around[-1] + 1e-3  # 1 ns: numbers have three places
            around.append(end)
    return sum(map(len, tracks.values())), len(tracks), wrong


def busy_share(path):
    from hta.trace_analysis import TraceAnalysis
    with tempfile.TemporaryDirectory() as work:
        name = os.path.join(work, "trace.json" + (".gz" if path.endswith(".gz") else ""))
        shutil.copy(path, name)
        table = TraceAnalysis(trace_files={0: name}).get_temporal_breakdown(visualize=False)
    return 100 - float(table["idle_time_pctg"].iloc[0])


def main(path, ours=None):
    n, tracks, wrong = overlaps(path)
    print(f"  {n} spans on {tracks} tracks, {wrong} overlap")
    if ours is None or not importlib.util.find_spec("hta"):
        print("  the busy share is not compared:", "none was printed" if ours is None else "HolisticTraceAnalysis is not installed")
        return wrong > 0 or n == 0
    share = busy_share(path)
    print(f"  HolisticTraceAnalysis: busy {share:.2f} %, ours {ours:.2f} %")
    return abs(share - ours) > WITHIN or wrong > 0 or n == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:3])))
