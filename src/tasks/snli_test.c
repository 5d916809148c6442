/* Sentence pairs: one form for raw and tokenised sentences (examples from the real files), pairs and splits of made and real files,
 * and one clear message for each way in which a table can be broken. */
#include "task_sets.h"

#include "tasks/pairs.h"
#include "tasks/sentence.h"

#include <zlib.h>

/* --- one form ------------------------------------------------------------------------------------------------------------------- */

static const char *const forms[][2] = {
    /* tokenised, as in dev and test */
    { "Two women are embracing while holding to go packages .",
      "Two women are embracing while holding to go packages." },
    { "Two young children in blue jerseys , one with the number 9 .",
      "Two young children in blue jerseys, one with the number 9." },
    { "The boy does n't like his costume .", "The boy doesn't like his costume." },
    { "There 's a group of women on a bus .", "There's a group of women on a bus." },
    { "People are saying `` cheese '' .", "People are saying \"cheese\"." },
    { "a woman holding a newspaper that says `` real change ''",
      "a woman holding a newspaper that says \"real change\"" },
    { "A football player in a blue `` Rams '' jersey runs", "A football player in a blue \"Rams\" jersey runs" },
    { "while her friend ( also in blue and green ) watches .", "while her friend (also in blue and green) watches." },
    { "white hats , ( two with baseball caps , the leader with a helmet ) , pounding sticks",
      "white hats, (two with baseball caps, the leader with a helmet), pounding sticks" },
    { "-LRB- one dressed in blue -RRB- are racing", "(one dressed in blue) are racing" },
    { "The girls ' uniforms are solid white .", "The girls' uniforms are solid white." },
    { "the words ' hippie killer ' in white letters", "the words 'hippie killer' in white letters" },
    { "The children are eating PB & J sandwiches inside .", "The children are eating PB & J sandwiches inside." },
    { "the words 99 % Angel .", "the words 99% Angel." },
    { "A rock band is playing at the 9 : 30 Club", "A rock band is playing at the 9:30 Club" },
    { "the restaurant chain : Planet Hollywood , various", "the restaurant chain: Planet Hollywood, various" },
    { "approach fare card machines ; one older man", "approach fare card machines; one older man" },
    { "Making something tasty hope you like lemons !", "Making something tasty hope you like lemons!" },
    { "The gymnast can not finish her exercise .", "The gymnast cannot finish her exercise." },
    { "a parade for St. Patrick 's Day .", "a parade for St. Patrick's Day." },
    { "No natural objects are shown here - every single thing is man made .",
      "No natural objects are shown here - every single thing is man made." },
    /* raw, as in train, some of it half tokenised */
    { "A girl in water, with goggles and swimming cap.", "A girl in water, with goggles and swimming cap." },
    { " Two people and a dog play in the water. ", "Two people and a dog play in the water." },
    { "A middle-aged man  reads a book about dogs to a toddler .",
      "A middle-aged man reads a book about dogs to a toddler." },
    { "People on a highway celebrating (I honestly do n't know)",
      "People on a highway celebrating (I honestly don't know)" },
    { "# 8 for Iowa State stiff arms a Texas AM player", "#8 for Iowa State stiff arms a Texas AM player" },
    { "A girl reading \"to Kill a Mockingbird\" while reclining.",
      "A girl reading \"to Kill a Mockingbird\" while reclining." },
    { "he said \" hi \" twice", "he said \"hi\" twice" },
    { "A female is recording her research. `", "A female is recording her research.'" },
    { "are...his Batarangs!", "are...his Batarangs!" },
    { "", "" },
    { " \t ", "" },
};

static void assert_form(const char *text, size_t bytes, const char *wanted)
{
    tn_text out = { 0 };
    assert_ok(tn__sentence_write(text, bytes, &out));
    if (out.n != strlen(wanted) || (out.n && memcmp(out.data, wanted, out.n) != 0))
        fail_msg("\"%.*s\" instead of \"%s\"", (int)out.n, out.data ? out.data : "", wanted);
    tn_text_free(&out);
}

static void one_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        assert_form(forms[i][0], strlen(forms[i][0]), forms[i][1]);
        assert_form(forms[i][1], strlen(forms[i][1]), forms[i][1]); /* as it is written it stays */
    }
}

/* --- pairs ---------------------------------------------------------------------------------------------------------------------- */

static tn_status try_pairs(const char *folder, const char *more, tn_pairs **out)
{
    char words[1200];
    const tn_task *t;
    snprintf(words, sizeof words, "task=snli task.data=%s %s", folder, more);
    tn_settings *st = tn_task_settings_of(words);
    assert_ok(tn_task_find("snli", &t));
    const tn_status s = t->pairs(st, out);
    tn_settings_free(st);
    return s;
}

static tn_pairs *pairs_of(const char *folder, const char *more)
{
    tn_pairs *p = NULL;
    assert_ok(try_pairs(folder, more, &p));
    return p;
}

/* The sentence as text, from its tokens. */
static const char *read_back(const tn_pairs *p, int split, int64_t i, int which, tn_text *out)
{
    int32_t ids[4096];
    const int64_t n = tn_pairs_read(p, split, i, which, ids);
    assert_in_range(n, 1, p->text);
    for (int64_t k = 0; k < p->text; k++) assert_true(k < n ? ids[k] > 0 && ids[k] < p->vocab : ids[k] == 0);
    out->n = 0;
    assert_ok(tn_tokenizer_decode(p->tokenizer, ids, (size_t)n, out));
    assert_ok(tn_tokenizer_decode(p->tokenizer, &(int32_t){ tn_tokenizer_find(p->tokenizer, "!") }, 1, out));
    out->data[--out->n] = 0;
    return out->data;
}

static const char head[] = "gold_label\tsentence1\tsentence2\n";
static const char train[] = "entailment\tA dog runs.\tAn animal runs.\n"
                            "neutral\tA dog runs.\tA dog runs to a cat.\n"
                            "entailment\t\"A man says \"\"hi\"\".\"\tA man speaks.\n"
                            "-\tNobody knows.\tNobody agrees.\n"
                            "entailment\tThe boy does n't sleep.\tThe boy is awake.\n"
                            "entailment\tA cat sits.\tAn animal sits.\r\n";
static const char dev[] = "entailment\tThe boy does n't sleep .\tA boy is awake .\n"
                          "entailment\tTwo kids play .\tKids play .\n"
                          "contradiction\tA cat sits .\tA cat runs .\n";
static const char test[] = "entailment\tTwo kids play .\tTwo children play .\n"
                           "entailment\tA woman sings .\tSomebody sings .\n";

static void put_table(tn_tempdir *d, const char *name, const char *first, const char *rows)
{
    char text[2000];
    const int n = snprintf(text, sizeof text, "%s%s", first, rows);
    const char *path = tn_tempdir_file(d, name);
    if (!strstr(name, ".gz")) {
        tn_put_file(path, text, (size_t)n);
        return;
    }
    gzFile gz = gzopen(path, "wb");
    assert_true(gz && gzwrite(gz, text, (unsigned)n) == n);
    assert_int_equal(gzclose(gz), Z_OK);
}

static void put_tables(tn_tempdir *d)
{
    put_table(d, "snli_train.tsv", head, train);
    put_table(d, "snli_dev.tsv.gz", head, dev);
    put_table(d, "snli_test.tsv", head, test);
}

static void made(void **state)
{
    (void)state;
    static const char *const wanted[TN_SPLITS][2][2] = {
        /* the boy is in dev, the cat too, with another label: neither is trained on */
        { { "A dog runs.", "An animal runs." }, { "A man says \"hi\".", "A man speaks." } },
        { { "The boy doesn't sleep.", "A boy is awake." }, { NULL, NULL } }, /* the kids are in the test */
        { { "Two kids play.", "Two children play." }, { "A woman sings.", "Somebody sings." } },
    };
    char a[TN_HASH_BYTES], b[TN_HASH_BYTES];
    tn_tempdir d;
    tn_text text = { 0 };
    tn_tempdir_make(&d);
    put_tables(&d);
    tn_pairs *p = pairs_of(d.path, "task.vocab=300"), *other;
    assert_true(p->text == 64 && p->vocab > 257 && p->vocab <= 300 && p->left_out == 3 && p->cut == 0);
    for (int k = 0; k < TN_SPLITS; k++) {
        assert_int_equal(p->count[k], wanted[k][1][0] ? 2 : 1);
        for (int64_t i = 0; i < p->count[k]; i++)
            for (int which = 0; which < 2; which++)
                assert_string_equal(read_back(p, k, i, which, &text), wanted[k][i][which]);
    }
    assert_ok(tn_pairs_hash(p, a));
    other = pairs_of(d.path, "task.vocab=300 task.length=3"); /* the same, cut */
    assert_true(other->text == 3 && other->cut > 0);
    assert_ok(tn_pairs_hash(other, b));
    assert_string_not_equal(a, b);
    tn_pairs_free(other);
    other = pairs_of(d.path, "task.vocab=258");
    assert_ok(tn_pairs_hash(other, b));
    assert_string_not_equal(a, b);
    tn_pairs_free(other);
    put_table(&d, "snli_test.tsv", "x\tsentence2\tgold_label\ty\tsentence1\n", /* columns as they come */
              "1\tTwo children play .\tentailment\t2\tTwo kids play .\n3\tSomebody sings .\tentailment\t4\tA woman "
              "sings .\n");
    other = pairs_of(d.path, "task.vocab=300");
    assert_ok(tn_pairs_hash(other, b));
    assert_string_equal(a, b);
    tn_pairs_free(other);
    tn_pairs_free(p);
    tn_text_free(&text);
    tn_tempdir_clear(&d);
}

/* --- broken --------------------------------------------------------------------------------------------------------------------- */

static void broken(void **state)
{
    (void)state;
    static const struct {
        const char *first, *rows, *says;
    } row[] = {
        { head, "entailment\tA dog runs.\n", "snli_train.tsv:2: 2 fields, and the first line has 3" },
        { head, "neutral\ta\tb\nentailment\ta\tb\tc\n", "snli_train.tsv:3: 4 fields, and the first line has 3" },
        { head, "entailment\ta\tb\n\n", "snli_train.tsv:3: 1 fields" },
        { head, "entails\ta\tb\n", ":2: gold_label is \"entails\" instead of entailment, neutral, contradiction or -" },
        { head, "neutral\ta\t \n", ":2: sentence2 is empty: remove the line" },
        { head, "neutral\t\"\"\tb\n", ":2: sentence1 is empty" },
        { head, "neutral\ta\xff\tb\n", ":2: the line is not UTF-8 text" },
        { "entailment\ta\tb\n", "neutral\ta\tb\n", ":1: no column gold_label; the first line names the columns" },
        { "gold_label\tsentence1\n", "neutral\ta\n", ":1: no column sentence2" },
        { head, "", "has no rows: download it again" },
        { "", "", "has no rows: download it again" },
        { head, "neutral\ta\tb\n", "has no pair with gold_label entailment" },
        { head, "entailment\tTwo kids play.\tb\n", "has no pair with gold_label entailment that is in no other split" },
    };
    tn_pairs *p = NULL;
    tn_tempdir d;
    tn_tempdir_make(&d);
    put_tables(&d);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        put_table(&d, "snli_train.tsv", row[i].first, row[i].rows);
        assert_fails(try_pairs(d.path, "", &p), TN_BAD_FILE, row[i].says);
    }
    assert_fails(try_pairs("", "", &p), TN_USAGE,
                 "task=snli needs its files: give task.data=FOLDER with snli_train.tsv");
    assert_int_equal(unlink(tn_tempdir_file(&d, "snli_train.tsv")), 0);
    assert_fails(try_pairs(d.path, "", &p), TN_BAD_FILE, "contains no snli_train.tsv: task=snli needs");
    assert_null(p);
    tn_tempdir_clear(&d);
}

/* --- the real ones -------------------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Every sentence has the one form, also those of dev and test; premises are in one split each. */
static void real(void **state)
{
    (void)state;
    const char *folder = tn_test_data("nli/snli");
    int64_t all = 0, split_of = 0, doubled = 0;
    tn_text text = { 0 };
    if (!folder) return;
    tn_pairs *p = pairs_of(folder, "");
    assert_true(p->vocab == 4096 && p->text == 64);
    assert_true(p->count[TN_TRAIN] == 6667 && p->count[TN_VALID] == 3328 && p->count[TN_TEST] == 3368);
    assert_true(p->left_out == 6 && p->cut == 3);
    for (int k = 0; k < TN_SPLITS; k++) all += p->count[k];
    char **premise = tn_alloc((size_t)all * sizeof *premise);
    for (int k = 0; k < TN_SPLITS; k++)
        for (int64_t i = 0; i < p->count[k]; i++)
            for (int which = 0; which < 2; which++) {
                const char *s = read_back(p, k, i, which, &text);
                assert_form(s, strlen(s), s);
                doubled += strstr(s, "\"\"") || strstr(s, "``") || strstr(s, " n't") || strstr(s, " .");
                if (which == TN_PREMISE) {
                    char *kept = premise[split_of++] = tn_alloc(strlen(s) + 2);
                    sprintf(kept, "%s%d", s, k);
                }
            }
    assert_int_equal(doubled, 0);
    qsort(premise, (size_t)all, sizeof *premise, compare);
    for (int64_t i = 1; i < all; i++) {
        const size_t n = strlen(premise[i]) - 1;
        if (strlen(premise[i - 1]) == n + 1 && memcmp(premise[i - 1], premise[i], n) == 0)
            assert_int_equal(premise[i - 1][n], premise[i][n]);
    }
    assert_string_equal(read_back(p, TN_VALID, 0, TN_PREMISE, &text),
                        "Two women are embracing while holding to go packages.");
    assert_string_equal(read_back(p, TN_VALID, 0, TN_HYPOTHESIS, &text), "Two woman are holding packages.");
    for (int64_t i = 0; i < all; i++) tn_free(premise[i]);
    tn_free(premise);
    tn_text_free(&text);
    tn_pairs_free(p);
}

void tn_tests_snli(tn_test_list *l)
{
    tn_test_add(l, one_form, NULL, "snli: one form for all sentences");
    tn_test_add(l, made, NULL, "snli: made files");
    tn_test_add(l, broken, NULL, "snli: broken files");
    tn_test_add(l, real, NULL, "snli: the real files");
}
