"""Settings and studies (YAML), and databases of studies (SQLite)."""
import os
import shutil
import sqlite3

from artefacts import ESC, OUT, artefact, elf
from formats import fifo, folder, journal, link, read, unix_socket, write

SHOWN = ESC.encode("unicode_escape").decode()  # as a double-quoted YAML text has it

# --- settings -----------------------------------------------------------------------------------------------------------------

TINY = ("dim: 16\nlayers: 1\nheads: 1\nvocab: 256\nthreads: 1\ntrain: {steps: 2, context: 16, batch: 2, eval_batches: 1, warmup: 1}\n")


@artefact("settings", "c.yaml")
def settings_name_a_program(d, good):
    elf(f"{d}/x.so", good)
    write(f"{d}/c.yaml", f"model: ./x.so\n{TINY}")


@artefact("settings", "c.yaml")
def settings_name_a_program_outside(d, good):
    write(f"{d}/c.yaml", f"model: {OUT}/x.so\n{TINY}")


@artefact("settings", "c.yaml")
def settings_name_a_program_as_preset(d, good):
    elf(f"{d}/x.so", good)
    write(f"{d}/c.yaml", f"preset: ./x.so\n{TINY}")


@artefact("settings", "c.yaml")
def settings_are_a_program(d, good):
    elf(f"{d}/c.yaml", good)


@artefact("settings", "c.yaml")
def settings_alias_bomb(d, good):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 10) + "]" for i in range(1, 10)]
    write(f"{d}/c.yaml", "\n".join(lines) + "\n")


@artefact("settings", "c.yaml")
def settings_merge_bomb(d, good):
    write(f"{d}/c.yaml", "a: &a {<<: *a}\n<<: *a\n")


@artefact("settings", "c.yaml")
def settings_nested(d, good):
    write(f"{d}/c.yaml", "train: " + "{a: " * 20000 + "1" + "}" * 20000 + "\n")


@artefact("settings", "c.yaml")
def settings_nested_by_lines(d, good):
    write(f"{d}/c.yaml", "".join(" " * i + f"a{i}:\n" for i in range(1200)))


@artefact("settings", "c.yaml")
def settings_with_equal_keys(d, good):
    write(f"{d}/c.yaml", f"model: gpt\nmodel: gpt\n{TINY}dim: 16\n")


@artefact("settings", "c.yaml")
def settings_with_a_long_value(d, good):
    write(f"{d}/c.yaml", b"data: " + b"x" * 10000000 + b"\n")


@artefact("settings", "c.yaml")
def settings_with_a_long_key(d, good):
    write(f"{d}/c.yaml", b"x" * 1000 + b": 1\n" + b'? "' + b"y" * 5000000 + b'"\n: 1\n')


@artefact("settings", "c.yaml")
def settings_keys_with_escapes(d, good):
    write(f"{d}/c.yaml", f'model: gpt\n"{SHOWN}": 1\n')


@artefact("settings", "c.yaml")
def settings_values_with_escapes(d, good):
    write(f"{d}/c.yaml", f'model: gpt\ncompute: "{SHOWN}\\nerror: false"\n')


@artefact("settings", "c.yaml")
def settings_model_with_escapes(d, good):
    write(f"{d}/c.yaml", f'model: "{SHOWN}"\n')


@artefact("settings", "c.yaml", "config* check bench* report ablate tune race py train*")
def settings_texts_with_escapes(d, good):
    """Values that may be any text: they are shown as text."""
    write(f"{d}/c.yaml", f'model: gpt\n{TINY}sample: {{prompt: "{SHOWN}"}}\nrun: "{SHOWN}"\n')


@artefact("settings", "c.yaml")
def settings_with_tags(d, good):
    write(f"{d}/c.yaml", "model: !!python/object/apply:os.system ['touch marker']\n")


@artefact("settings", "c.yaml")
def settings_of_other_bytes(d, good):
    write(f"{d}/c.yaml", b"\xff\xfem\x00o\x00d\x00e\x00l\x00:\x00 \x00\x1b\x00\n\x00" + bytes(200))


@artefact("settings", "c.yaml", "config* check bench* report ablate tune race py train-here")
def settings_run_outside(d, good):
    """A file may not say that a folder elsewhere is written to: that is for the command line."""
    write(f"{d}/c.yaml", f"model: gpt\n{TINY}run: {OUT}/r\n")


@artefact("settings", "c.yaml", "config* check bench* report ablate tune race py train-here")
def settings_new_run_outside(d, good):
    write(f"{d}/c.yaml", f"model: gpt\n{TINY}run: {os.path.realpath(d)}/{OUT}/new/run\n")


@artefact("settings", "c.yaml", "config* py bench-decode", also="*=5")
def settings_of_a_giant(d, good):
    write(f"{d}/c.yaml", "model: gpt\ndim: 65536\nlayers: 500\nheads: 64\nvocab: 256\nthreads: 1\n")


@artefact("settings", "c.yaml", "config* py bench-decode bench-inputs race", also="*=5")
def settings_of_a_long_context(d, good):
    write(f"{d}/c.yaml", "model: gpt\ndim: 16\nlayers: 1\nheads: 1\nthreads: 1\ntrain: {context: 100000000, batch: 1000000}\n")


@artefact("settings", "c.yaml", "config* check bench* report ablate race py train*", also="*=5")
def settings_of_much_ahead(d, good):
    write(f"{d}/c.yaml", f"model: gpt\n{TINY}loader: {{prefetch: 1000000, workers: 64}}\n")


@artefact("settings", "c.yaml")
def settings_are_a_fifo(d, good):
    fifo(f"{d}/c.yaml")


@artefact("settings", "c.yaml")
def settings_are_endless(d, good):
    link(f"{d}/c.yaml", "/dev/zero")


@artefact("settings", "c.yaml")
def settings_are_a_folder(d, good):
    folder(f"{d}/c.yaml")


# --- studies ------------------------------------------------------------------------------------------------------------------

STUDY = """study: s
base: xor_tep
set: { train.epochs: 1, task.size: 64, train.batch: 16 }
search: { dim: log int 4..8 }
objectives: [ accuracy max 0 ]
sampler: random
trials: 1
"""


def study(name, text, ok="", also=""):
    def make(d, good):
        if "x.so" in text:
            elf(f"{d}/x.so", good)
        write(f"{d}/s.yaml", text.replace("HERE", os.path.realpath(d)))
    make.__name__ = "study_" + name
    artefact("study", "s.yaml", ok, also)(make)


study("of_a_program", STUDY.replace("base: xor_tep", "base: ./x.so"))
study("of_a_program_outside", STUDY.replace("base: xor_tep", f"base: {OUT}/x.so"))
study("sets_a_program", STUDY.replace("set: {", "set: { model: ./x.so,"))
study("searches_programs", STUDY.replace("search: {", "search: { model: [ ./x.so, tep ],"))
study("side_of_a_program", STUDY + "sides: { a: { base: ./x.so }, b: {} }\n")
study("base_is_a_file_with_a_program", STUDY.replace("base: xor_tep", "base: c.yaml"))
study("db_outside", STUDY + f"db: {OUT}/new.db\n", ok="plan run-elsewhere")
study("db_in_full", STUDY + f"db: HERE/{OUT}/new.db\n", ok="plan run-elsewhere")
study("db_is_anothers", STUDY + f"db: {OUT}/secret\n", ok="plan run-elsewhere")
study("name_outside", STUDY.replace("study: s", f"study: {OUT}/x"))
study("name_in_full", STUDY.replace("study: s", "study: /tmp/x"))
study("name_with_escapes", STUDY.replace("study: s", f'study: "{SHOWN}"'))
study("side_outside", STUDY + f'sides: {{ "{OUT}/a": {{}} }}\n')
study("side_with_escapes", STUDY + f'sides: {{ "{SHOWN}": {{}} }}\n')
study("keys_with_escapes", STUDY + f'"{SHOWN}": 1\n')
study("searches_escapes", STUDY.replace("search: {", f'search: {{ "{SHOWN}": 1..2, compute: [ "{SHOWN}" ],'))
study("run_outside", STUDY.replace("set: {", f"set: {{ run: {OUT}/r,"))
study("of_10_18_trials", STUDY.replace("trials: 1", "trials: 1000000000000000000"))
study("of_many_sides", STUDY + "sides: {" + ", ".join(f"s{i}: {{}}" for i in range(5000)) + "}\n")
study("of_many_dimensions", STUDY.replace("search: {", "search: {" + "".join(f"k{i}: 1..2, " for i in range(20000))))
study("of_many_choices", STUDY.replace("search: {", "search: { train.batch: [" + ", ".join(map(str, range(1, 200000))) + "],"))
study("of_a_large_grid", STUDY.replace("random", "grid").replace(
    "search: {", "search: { train.lr: 1e-9..1 step 1e-9, damping: 0.1..0.9 step 1e-9,"))
study("alias_bomb", "study: &a0 [x,x,x,x,x,x,x,x]\n" + "".join(
    f"k{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 8) + "]\n" for i in range(1, 12)))
study("nested", "study: s\nset: " + "[" * 20000 + "]" * 20000 + "\n")
study("long_text", STUDY + "published: { source: \"" + "x" * 10000000 + "\" }\n")
study("transfer_from_nothing", STUDY + f"transfer: {{ from: {OUT}/nothing/s, best: 3 }}\n", ok="plan")
study("transfer_from_a_program", STUDY + "transfer: { from: ./x.so/s, best: 3 }\n", ok="plan")
study("rules_with_escapes", STUDY + f'rules: [ "{SHOWN} > 1 for 5 steps" ]\n')
study("gigantic", STUDY.replace("set: {", "set: { task.size: 1000000000,"), ok="*plan", also="*=5")


@artefact("study", "s.yaml", "*")
def study_with_linked_trials(d, good):
    """Folders of trials lie beside the database."""
    write(f"{d}/s.yaml", STUDY)
    link(f"{d}/s", f"{OUT}/folder")


@artefact("study", "s.yaml", "*")
def study_with_a_linked_trial(d, good):
    write(f"{d}/s.yaml", STUDY)
    link(f"{d}/s/s/0", f"../../{OUT}/folder")


@artefact("study", "s.yaml", "*")
def study_with_a_linked_name(d, good):
    write(f"{d}/s.yaml", STUDY)
    link(f"{d}/s/s", f"../{OUT}/folder")


@artefact("study", "s.yaml")
def study_is_a_fifo(d, good):
    fifo(f"{d}/s.yaml")


@artefact("study", "s.yaml", "plan run-elsewhere")
def study_with_a_fifo_as_database(d, good):
    write(f"{d}/s.yaml", STUDY)
    fifo(f"{d}/s.db")


@artefact("study", "s.yaml", "plan run-elsewhere")
def study_with_a_linked_database(d, good):
    write(f"{d}/s.yaml", STUDY)
    link(f"{d}/s.db", f"{OUT}/new.db")


# --- databases ----------------------------------------------------------------------------------------------------------------


def base(d, good):
    shutil.copy(f"{good}/s.db", f"{d}/s.db")
    return f"{d}/s.db"


WITHOUT_SUMS = "".join(f"ALTER TABLE {t} DROP COLUMN sum;" for t in ("study", "trial", "report")) + "PRAGMA user_version = 1;"


def changed(name, sql, ok="", also="", first=WITHOUT_SUMS):
    """A valid database after some statements; writable_schema lets them change the schema itself. It has version 1, whose rows have
    no sums: with them a change would be noticed before anything else is looked at."""
    def make(d, good):
        if "x.so" in sql:
            elf(f"{d}/x.so", good)
        c = sqlite3.connect(base(d, good))
        c.executescript(first)
        c.execute("PRAGMA writable_schema = ON")
        c.execute("PRAGMA ignore_check_constraints = ON")
        c.executescript(sql.replace("ESC", ESC))
        c.commit()
        c.close()
        for end in ("-wal", "-shm"):
            if os.path.exists(f"{d}/s.db{end}"):
                os.unlink(f"{d}/s.db{end}")
    make.__name__ = "database_" + name
    artefact("database", "s.db", ok, also)(make)


CLAIM = "UPDATE trial SET state = 0, worker = 0;"  # trials that would be run
changed("with_triggers", "CREATE TRIGGER t AFTER UPDATE ON trial BEGIN UPDATE study SET text = 'x'; DELETE FROM report; END;"
        "CREATE TRIGGER u AFTER INSERT ON worker BEGIN DELETE FROM trial; END;")
changed("with_a_view", "ALTER TABLE trial RENAME TO real; CREATE VIEW trial AS SELECT * FROM real;")
changed("with_an_endless_view", "DROP TABLE report; CREATE VIEW report AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
        "SELECT n AS trial, n AS rung, n AS step, 1.0 AS epoch, 1.0 AS seconds, 1.0 AS score, '{}' AS value FROM r;")
changed("with_functions", "DROP INDEX trial_open; DROP TABLE report; CREATE TABLE report(trial INTEGER, rung INTEGER, step INTEGER, epoch REAL, "
        "seconds REAL, score REAL, value TEXT DEFAULT (load_extension('./x.so')));")
changed("without_tables", "DROP TABLE report; DROP TABLE trial;")
changed("with_other_columns", "DROP TABLE report; CREATE TABLE report(a, b);")
changed("with_a_virtual_table", "DROP TABLE report; CREATE VIRTUAL TABLE report USING fts5(trial, rung, step, epoch, seconds, score, value);")
changed("with_a_broken_schema", "UPDATE sqlite_schema SET sql = 'CREATE TABLE trial(' WHERE name = 'trial';")
changed("with_crossed_pages", "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'study') WHERE name = 'trial';")
changed("of_another_program", "PRAGMA application_id = 12345;")
changed("of_the_future", "PRAGMA user_version = 99;")
for _key, _ok in (("model: ./x.so,", ""), ("data: ../../outside/secret,", ""), ("run: ../../outside/r,", "")):
    changed("sets_" + _key.split(":")[0], f"UPDATE study SET text = replace(text, 'set: {{', 'set: {{ {_key}'); {CLAIM}", ok="ls* show* best* export* diff plot* work")
changed("of_a_program", f"UPDATE study SET text = replace(text, 'base: xor_tep', 'base: ./x.so'); {CLAIM}", ok="ls* show* best* export* diff plot*")
changed("overrides_a_program", f"UPDATE study SET overrides = 'model=./x.so\n'; {CLAIM}", ok="ls* show* best* export* diff plot*")
changed("named_outside", f"UPDATE study SET name = '../../outside/folder', text = replace(text, 'study: s', 'study: ../../outside/folder'); {CLAIM}", ok="run-in")
changed("with_escapes", "UPDATE study SET name = 'ESC', path = 'ESC' WHERE 1; UPDATE worker SET host = 'ESC'; UPDATE trial SET error = 'ESC', state = 4;",
        ok="*")
changed("sides_with_escapes", "UPDATE study SET text = replace(text, 'ep:', '\"ESC\":');", ok="*")
changed("errors_with_escapes", "UPDATE trial SET error = 'ESC' || char(10) || 'error: false', state = 4; UPDATE report SET value = '{\"ESC\":1}';", ok="*")
changed("of_impossible_numbers", "UPDATE trial SET x = '[1e999,-1e999]', y = '[1e999,nan,5]', seconds = 1e308, started = -1e308, ended = 1e308, "
        "parameters = -1, number = number + 9223372036854775000, seed = -1;", ok="*")
changed("of_impossible_rungs", "UPDATE report SET step = 9223372036854775807, epoch = 1e308, score = 1e999, rung = 9223372036854775000 + rung;", ok="*")
changed("of_broken_lists", "UPDATE trial SET x = '[[[[[[', y = '}'; UPDATE report SET value = '[1'; UPDATE study SET kinds = 'zzzzzzzzzzzzzzzzz';", ok="ls")
changed("of_other_sides", "UPDATE trial SET side = 63 WHERE id = 1; UPDATE trial SET side = -1 WHERE id = 2;")
changed("of_impossible_states", "UPDATE trial SET state = 77, kind = 99, study = 42;")
changed("of_no_text", "UPDATE study SET text = '';")
changed("of_a_nested_study", "UPDATE study SET text = 'study: s' || char(10) || 'set: ' || replace(hex(zeroblob(10000)), '0', '[');")
changed("of_long_texts", "UPDATE trial SET error = replace(hex(zeroblob(2000000)), '0', 'x'), state = 4 WHERE id = 1;", ok="*")
changed("of_long_numbers", "UPDATE trial SET x = '[' || replace(hex(zeroblob(2000000)), '0', '1,') || '1]';", ok="*")
changed("planned_for_ever", f"UPDATE study SET planned = 9223372036854775807, spent = -1e308; {CLAIM}", ok="*")
changed("of_a_worker_here", "UPDATE worker SET pid = 1, gone = 0, beat = 1e300;", ok="*")
changed("of_an_earlier_version", "", ok="*")
changed("whose_sums_are_wrong", "UPDATE trial SET seed = seed + 1;", first="")


@artefact("database", "s.db")
def database_damaged(d, good):
    """A page of rows, overwritten."""
    raw = bytearray(read(base(d, good)))
    for page in range(2, len(raw) // 4096):
        raw[page * 4096 + 8:page * 4096 + 72] = b"\xa5" * 64
    write(f"{d}/s.db", bytes(raw))


@artefact("database", "s.db")
def database_cut(d, good):
    write(f"{d}/s.db", read(f"{good}/s.db")[:9000])


@artefact("database", "s.db")
def database_of_text(d, good):
    write(f"{d}/s.db", "a text, and no database\n" * 1000)


@artefact("database", "s.db", "run-in")
def database_empty(d, good):
    write(f"{d}/s.db", b"")


@artefact("database", "s.db")
def database_is_a_fifo(d, good):
    fifo(f"{d}/s.db")


@artefact("database", "s.db")
def database_is_a_socket(d, good):
    unix_socket(f"{d}/s.db")


@artefact("database", "s.db")
def database_is_endless(d, good):
    link(f"{d}/s.db", "/dev/zero")


@artefact("database", "s.db")
def database_is_a_program(d, good):
    elf(f"{d}/s.db", good)


@artefact("database", "s.db", "*")
def database_with_a_false_log(d, good):
    base(d, good)
    write(f"{d}/s.db-wal", b"\x37\x7f\x06\x82" + b"\xff" * 8000)


@artefact("database", "s.db", "*")
def database_with_a_linked_log(d, good):
    base(d, good)
    link(f"{d}/s.db-wal", f"{OUT}/secret")
    link(f"{d}/s.db-shm", f"{OUT}/t.txt")


@artefact("database", "s.db", "*")
def database_with_a_journal_that_removes(d, good):
    """Rolling it back removes the file that it calls its super-journal."""
    path = base(d, good)
    raw = bytearray(read(path))
    raw[18:20] = b"\x01\x01"  # no write-ahead log
    write(path, bytes(raw))
    write(f"{d}/s.db-journal", journal(os.path.realpath(f"{d}/{OUT}/secret")))


@artefact("database", "s.db", "*")
def database_with_a_linked_journal(d, good):
    path = base(d, good)
    raw = bytearray(read(path))
    raw[18:20] = b"\x01\x01"
    write(path, bytes(raw))
    link(f"{d}/s.db-journal", f"{OUT}/secret")
