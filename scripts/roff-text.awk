# Plain paragraphs out of manual pages in roff (man macros), given one after the other: zcat *.gz | awk -f roff-text.awk
# One paragraph a line, an empty line after each. It keeps prose only: comments, macros, tables, code and the sections
# that are lists (SYNOPSIS, SEE ALSO ...) go. It is no typesetter: what it does not know, it leaves out.
# Invariant: every output line is printable ASCII and free of roff escapes.

BEGIN {
    split("SYNOPSIS LIBRARY ATTRIBUTES STANDARDS COLOPHON COPYRIGHT AUTHOR AUTHORS LICENSE FILES", w, " ")
    for (i in w) dropped[w[i]] = 1
    dropped["SEE ALSO"] = dropped["CONFORMING TO"] = dropped["REPORTING BUGS"] = 1
    n = split("aq ' dq \" ha ^ ti ~ ga ` lq \" rq \" oq ' cq ' em -- en - hy - bu . rs \\ mu x de  +- +- <= <= >= >= != !=" \
              " -> -> <- <- fm ' la < ra > sd \" lB [ rB ] bv |", w, " ")
    for (i = 1; i < n; i += 2) glyph[w[i]] = w[i + 1]
    glyph["de"] = " degrees"; glyph["bu"] = ""
}

/^\.(TH|Dd) / { flush(); start_page() }
mdoc { next }
/^\.\\"/ || /^'\\"/ { next }
{ sub(/\\".*/, "") }
until != "" { if (index($0, until) == 1) until = ""; next }
braces > 0 { braces += count($0, "{") - count($0, "}"); next }
/^[.'][ \t]*[A-Za-z]/ { macro($0); next }
/^[.']/ { next }
skipping { next }
/^[ \t]*$/ { flush(); next }
/^[ \t]/ { flush(); next }         # indented text in a page is code or a table
{ text(clean($0)) }
END { flush() }

function start_page() { mdoc = braces = skipping = want_tag = joined = join_next = 0; until = part = tag = ""; section = "" }

function count(s, brace,   parts) { return gsub("\\\\[" brace "]", "", s) }

function flush(   alnum, words) {
    gsub(/[ \t]+/, " ", part); sub(/^ /, "", part); sub(/ $/, "", part)
    gsub(/[ \t]+/, " ", tag); sub(/[ ,:]+$/, "", tag)
    if (tag != "" && part != "") part = tag (tag ~ /^[(]?[0-9a-z]+[.)]$/ ? " " : ": ") part
    tag = ""; want_tag = 0
    if (part !~ /[^ -~]/) {
        alnum = part; gsub(/[^A-Za-z ]/, "", alnum)
        words = split(part, w, " ")
        if (length(part) >= 40 && words >= 7 && length(alnum) > 0.8 * length(part) && part ~ /[.!?:;)]$/ && !(part in seen)) {
            seen[part] = 1 # stock sentences stand on hundreds of pages; one is enough
            print part "\n"
        }
    }
    part = ""
}

# Adds a piece of the running line; the piece after a \c joins without a space.
function text(s) {
    if (s == "") return
    if (want_tag) {
        tag = tag (tag == "" || joined ? "" : ", ") s
        want_tag = join_next
    } else
        part = part (part == "" || joined ? "" : " ") s
    joined = join_next
    join_next = 0
}

function macro(line,   name, rest, i) {
    sub(/^[.'][ \t]*/, "", line)
    match(line, /^[A-Za-z]+/)
    name = substr(line, 1, RLENGTH); rest = substr(line, RLENGTH + 1)
    if (name == "Dd" || name == "Sh") { mdoc = 1; return }
    if (name == "de" || name == "am" || name == "ig") { until = ".."; return }
    if (name == "if" || name == "ie" || name == "el") { braces = count(line, "{") - count(line, "}"); return }
    if (name == "SH") {
        flush(); arguments(rest); section = ""
        for (i = 1; i <= args; i++) section = section (i > 1 ? " " : "") arg[i]
        skipping = (section in dropped); return
    }
    if (name == "SS") { flush(); return }
    if (skipping) return
    if (name == "TS") { flush(); until = ".TE"; return }
    if (name == "EX") { flush(); until = ".EE"; return }
    if (name == "nf") { flush(); until = ".fi"; return }
    if (name == "SY") { flush(); until = ".YS"; return }
    if (name == "TP") { flush(); want_tag = 1; return }
    if (name == "TQ") { want_tag = 1; return }
    if (name == "IP") { flush(); arguments(rest); tag = args ? label(arg[1]) : ""; return }
    if (name ~ /^(PP|P|LP|HP|sp|RS|RE|INDENT|UNINDENT)$/) { flush(); return }
    if (name ~ /^(B|I|SM|SB|UR|MT)$/) { arguments(rest); text(joined_args(" ")); return }
    if (name ~ /^(BR|RB|BI|IB|IR|RI)$/) { arguments(rest); text(joined_args("")); return }
    if (name == "UE" || name == "ME") { arguments(rest); if (args) part = part arg[1] }
}

# A bullet or a dash is no label; "(1)" and "EACCES" are.
function label(s) { return s ~ /[A-Za-z0-9]/ ? s : "" }

function joined_args(gap,   i, s) { for (i = 1; i <= args; i++) s = s (i > 1 ? gap : "") arg[i]; return s }

# Splits the arguments of a macro into arg[1..args]: blanks separate, "..." holds together, "" inside stands for ".
function arguments(s,   i, c, quoted, word, open) {
    args = 0; word = ""; open = quoted = 0
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (c == "\\") { word = word substr(s, i, 2); i++; open = 1 }
        else if (c == "\"" && quoted && substr(s, i + 1, 1) == "\"") { word = word c; i++ }
        else if (c == "\"" && (quoted || !open)) { if (quoted) { arg[++args] = clean(word); word = ""; open = 0 } else open = 1; quoted = !quoted }
        else if ((c == " " || c == "\t") && !quoted) { if (open) arg[++args] = clean(word); word = ""; open = 0 }
        else { word = word c; open = 1 }
    }
    if (open && word != "") arg[++args] = clean(word)
}

# Text without roff's escapes.
function clean(s,   out, i, c, name) {
    if (index(s, "\\") == 0) return s
    if (s ~ /\\c[ \t]*$/) { sub(/\\c[ \t]*$/, "", s); join_next = 1 }
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (c != "\\") { out = out c; continue }
        c = substr(s, ++i, 1)
        if (c == "f" || c == "*" || c == "n") { i = past_name(s, i + 1); out = out (c == "*" ? glyph[escape_name] : "") }
        else if (c == "(" || c == "[") { i = past_name(s, i); out = out glyph[escape_name] }
        else if (c == "s") { if (substr(s, i + 1, 1) ~ /[-+]/) i++; if (substr(s, i + 1, 1) ~ /[0-9]/) i++ }
        else if (c ~ /[whvN]/) { if (substr(s, i + 1, 1) == "'") { i += 2; while (i <= length(s) && substr(s, i, 1) != "'") i++ } }
        else if (c == "e" || c == "\\") out = out "\\"
        else if (c ~ /[-.'`]/) out = out c
        else if (c ~ /[ ~0]/) out = out " "
    }
    return out
}

# The position of the last character of the name that starts at s[i]: x, (xx or [xxx]; the name in escape_name.
function past_name(s, i,   e) {
    if (substr(s, i, 1) == "(") { escape_name = substr(s, i + 1, 2); return i + 2 }
    if (substr(s, i, 1) == "[") {
        e = index(substr(s, i), "]")
        escape_name = substr(s, i + 1, e - 2); return i + (e ? e - 1 : 0)
    }
    escape_name = substr(s, i, 1); return i
}
