/* Text from a small random grammar, for the demo on a machine without manual pages: gen_text BYTES SEED > text
 *
 * Each tale names its people and their trades at the start and speaks of them, by name or trade, until its end; asides
 * nest in parentheses; things are counted and the sum is told last. So a model that remembers does better than one that
 * sees a few words only. The same arguments give the same bytes on every machine. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define PICK(a) ((a)[below(COUNT(a))])

typedef struct person {
    const char *name, *trade, *home, *thing, *plural;
    unsigned gathered;
} person;

static const char *const heads[] = { "Al",  "Bren", "Cor", "Dal", "El",  "Fen", "Gar", "Hol",  "Is",
                                     "Jor", "Kel",  "Lin", "Mar", "Nor", "Or",  "Per", "Quil", "Ros",
                                     "Sel", "Tam",  "Ul",  "Ver", "Wil", "Yar", "Zel" };
static const char *const tails[] = { "a",  "an",   "den", "eth", "ia", "ick",  "is",
                                     "la", "mund", "nor", "o",   "ra", "sten", "wyn" };
static const char *const trades[] = { "miller",   "baker", "ferryman", "carpenter", "weaver",  "potter",
                                      "shepherd", "clerk", "mason",    "gardener",  "fiddler", "locksmith" };
static const char *const homes[] = { "the old bridge", "the north gate",   "the long meadow", "the harbour",
                                     "the red barn",   "the empty chapel", "the far hill",    "the market square" };
static const char *const things[][2] = { { "apple", "apples" },     { "letter", "letters" }, { "stone", "stones" },
                                         { "lantern", "lanterns" }, { "rope", "ropes" },     { "basket", "baskets" },
                                         { "coin", "coins" },       { "candle", "candles" } };
static const char *const numbers[] = { "no",       "one",      "two",      "three",   "four",    "five",
                                       "six",      "seven",    "eight",    "nine",    "ten",     "eleven",
                                       "twelve",   "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
                                       "eighteen", "nineteen", "twenty" };
static const char *const openings[] = { "In the spring of that year", "On a cold morning",
                                        "When the rain had stopped",  "Long before the railway came",
                                        "After the harvest",          "In the week of the fair" };
static const char *const links[] = {
    "Then", "Later", "After that", "At noon", "Before long", "Toward evening", "Again"
};
static const char *const moods[] = { "slowly",          "without a word", "in good time",
                                     "with great care", "as before",      "gladly" };
static const char *const remarks[] = { "nobody asked why",    "the dogs were quiet", "it was the custom there",
                                       "the wind had turned", "such days were rare", "the road was dry" };

static uint64_t state;
static size_t written;

static unsigned below(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 33) % n);
}

#define SAY(...) (written += (size_t)printf(__VA_ARGS__))

static const char *number(unsigned n) { return n < COUNT(numbers) ? numbers[n] : "many"; }

/* By name, or by trade: the reader has to remember whose trade it is. */
static void who(const person *p, bool first_in_sentence)
{
    if (below(3)) SAY("%s", p->name);
    else SAY("%s %s", first_in_sentence ? "The" : "the", p->trade);
}

static void aside(const person *v, size_t n, int depth)
{
    const person *p = &v[below(n)];
    SAY(" (%s, said ", PICK(remarks));
    who(p, false);
    if (depth < 3 && below(3) == 0) aside(v, n, depth + 1);
    SAY(")");
}

static void sentence(person *v, size_t n)
{
    person *p = &v[below(n)], *q = &v[below(n)];
    const unsigned most = (unsigned)COUNT(numbers) - 1 - p->gathered, k = 1 + below(4);
    if (below(4) == 0) {
        SAY("%s ", PICK(links));
        who(p, false);
    } else {
        who(p, true);
    }
    if (p != q && below(3) == 0) {
        SAY(" met ");
        who(q, false);
        SAY(" at %s", below(2) ? q->home : p->home);
    } else if (k <= most) {
        SAY(" found %s %s near %s", number(k), k == 1 ? p->thing : p->plural, p->home);
        p->gathered += k;
    } else {
        SAY(" walked back to %s %s", p->home, PICK(moods));
    }
    if (below(4) == 0) aside(v, n, 1);
    SAY(".");
}

static void tale(void)
{
    char names[4][16];
    person v[4];
    const size_t n = 2 + below(3);
    for (size_t i = 0; i < n; i++) {
        const char *head = PICK(heads),
                   *tail = PICK(tails); /* statements of their own: the order of arguments is the compiler's */
        snprintf(names[i], sizeof names[i], "%s%s", head, tail);
        const unsigned t = below(COUNT(things)), trade = (below(COUNT(trades) / 4) * 4 + (unsigned)i) % COUNT(trades);
        v[i] = (person){ names[i], trades[trade], PICK(homes), things[t][0], things[t][1], 0 };
    }
    SAY("%s there lived", PICK(openings));
    for (size_t i = 0; i < n; i++)
        SAY("%s %s, a %s by %s", i == 0 ? "" : i + 1 < n ? "," : ", and", v[i].name, v[i].trade, v[i].home);
    SAY(".\n\n");
    for (unsigned paragraphs = 2 + below(3); paragraphs > 0; paragraphs--) {
        for (unsigned k = 3 + below(5); k > 0; k--) {
            sentence(v, n);
            if (k > 1) SAY(" ");
        }
        SAY("\n\n");
    }
    SAY("When all was counted");
    for (size_t i = 0; i < n; i++)
        SAY("%s %s the %s had %s %s",
            i == 0      ? ","
            : i + 1 < n ? ","
                        : ", and",
            v[i].name, v[i].trade, number(v[i].gathered), v[i].gathered == 1 ? v[i].thing : v[i].plural);
    SAY(".\n\n");
}

int main(int argc, char **argv)
{
    const size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 2200000;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    state = seed * 0x9e3779b97f4a7c15u + 0x6a09e667f3bcc909u;
    while (written < bytes && !ferror(stdout)) tale();
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
