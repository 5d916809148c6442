/* wire on random texts and random frozen readers, in f32 on the device of TENON_TEST_DEVICE: what does and does not depend on what.
 * Numbers of the whole model are compared with a second implementation (bench/peers/wire_twin.py, tests/golden). */
#include "models/wire/wire.h"

#include "wire_rig.h"

/* --- tests --------------------------------------------------------------------------------------------------------------------- */

static const char *const embeddings[] = { "place=embeddings", NULL }, *const keys[] = { "place=keys", NULL };
static const char *const of_sender[] = { "place=embeddings", "encoder=sender", NULL };

/* Label i is of the state that has read the tokens before i and nothing else: a token changes what comes behind it, a label its own
 * place. All tokens of row 0 have labels here. */
static void alignment(void **state)
{
    rig r;
    seen before, after;
    open_rig(&r, &usual, *state, false);
    fill(&r, 0);
    const int n = row_of(0);
    for (int k = 0; k < 2; k++) {
        int32_t *tokens = input(&r, k ? "b" : "a", ".tokens"), *labels = input(&r, k ? "b" : "a", ".labels");
        for (int i = 1; i < n; i++) labels[i] = tokens[i];
        look(&r, NULL, &before);
        for (int i = 0; i < n; i++) {
            const int32_t token = tokens[i];
            tokens[i] = 3 + (token + 5) % (IDS - 3);
            look(&r, NULL, &after);
            for (int j = 1; j < n; j++) { /* column j-1 is of label j */
                const float x = before.nll[k][j - 1], y = after.nll[k][j - 1];
                if (j <= i ? !same(x, y) : near(x, y))
                    fail_msg("reader %d: token %d %s label %d", k, i, j <= i ? "reaches" : "does not reach", j);
            }
            for (int64_t j = LENGTH - 1; j < after.n; j++) assert_true(same(before.nll[k][j], after.nll[k][j]));
            assert_memory_equal(before.nll[1 - k], after.nll[1 - k], sizeof before.nll[k]);
            tokens[i] = token;
            if (!i) continue;
            labels[i] = 3 + (token + 5) % (IDS - 3);
            look(&r, NULL, &after);
            for (int64_t j = 0; j < after.n; j++)
                if (j == i - 1 ? near(before.nll[k][j], after.nll[k][j]) : !same(before.nll[k][j], after.nll[k][j]))
                    fail_msg("reader %d: label %d and column %lld", k, i, (long long)j);
            labels[i] = token;
        }
    }
    close_rig(&r);
}

/* The same of rows of text alone, which are aligned on the right: the last tokens are those of the answer. */
static void told_alignment(void **state)
{
    (void)state;
    rig r;
    seen before, after;
    open_rig(&r, &usual, embeddings, false);
    fill(&r, 0);
    const int n = row_of(0), start = TOLD - LENGTH; /* told[start + i] is token i */
    int32_t *told = input(&r, "a", ".told"), *tokens = input(&r, "a", ".tokens"), *labels = input(&r, "a", ".labels");
    for (int i = 1; i < n; i++) labels[i] = tokens[i], assert_int_equal(told[start + i], tokens[i]);
    look(&r, "text", &before);
    for (int i = -3; i < n; i++) { /* before 1: anchor and context */
        const int32_t token = told[start + i];
        told[start + i] = 3 + (token + 5) % (IDS - 3);
        look(&r, "text", &after);
        for (int j = 1; j < n; j++)
            if (j <= i ? !same(before.nll[0][j - 1], after.nll[0][j - 1])
                       : near(before.nll[0][j - 1], after.nll[0][j - 1]))
                fail_msg("token %d %s label %d", i, j <= i ? "reaches" : "does not reach", j);
        told[start + i] = token;
    }
    told = input(&r, "a", ".told") + (B * Q - 1) * TOLD; /* the shortest text: what stands before it is nothing */
    assert_int_equal((input(&r, "a", ".told_document") + (B * Q - 1) * TOLD)[1], 0);
    for (int i = 0; i < 2; i++) told[i] = 9;
    look(&r, "text", &after);
    for (int64_t j = 0; j < after.n; j++) assert_true(same(before.nll[0][j], after.nll[0][j]));
    close_rig(&r);
}

/* Rows without any text are as wide as question and answer at least; wider ones say the same. */
static void told_nothing(void **state)
{
    (void)state;
    static const sizes narrow = { B, BYTES, LENGTH, TEXT, LENGTH }, wider = { B, BYTES, LENGTH, TEXT, LENGTH + 2 };
    rig a, b;
    seen x, y;
    open_rig(&a, &narrow, embeddings, false);
    open_rig(&b, &wider, embeddings, false);
    fill(&a, 0);
    fill(&b, 0);
    assert_true(input(&a, "a", ".told")[0] == 1 && input(&b, "a", ".told")[2] == 1);
    look(&a, "text", &x);
    look(&b, "text", &y);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < x.n; i++) assert_true(near(x.nll[k][i], y.nll[k][i]));
    close_rig(&a);
    close_rig(&b);
}

/* Bytes (a sender: tokens) behind a text are nothing; those of a text are something, to this text alone. */
static void behind(void **state)
{
    const bool sends = *state == of_sender;
    const int64_t width = sends ? TEXT : BYTES;
    rig r;
    int64_t n;
    float z[B * 24];
    open_rig(&r, &usual, *state, false);
    fill(&r, 0);
    int32_t *x = sends ? input(&r, "a", ".text") : input(&r, "", "bytes");
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    memcpy(z, output_of(&r, "encode", "z", &n), sizeof z);
    assert_int_equal(n, B * 24);
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = sends ? 2 + words_of(b) : bytes_of(b); i < width; i++) x[b * width + i] = (int32_t)(5 + i);
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    assert_true(tn_world_same(output_of(&r, "encode", "z", &n), z, n, 1e-6));
    const int64_t last = sends ? 1 + words_of(1) : bytes_of(1) - 1;
    x[width + last] ^= 1;
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    const float *y = output_of(&r, "encode", "z", &n);
    assert_true(tn_world_same(y, z, 24, 1e-6) && tn_world_same(y + 48, z + 48, 24, 1e-6));
    for (int s = 0; s < 3; s++) assert_true(tn_world_distance(y + 24 + 8 * s, z + 24 + 8 * s, 8) > 1e-4);
    close_rig(&r);
}

/* A context of a batch, and the same alone, in places of other widths. */
static void compare_rows(const seen *all, const seen *one, int64_t c, int64_t wide, const char *what)
{
    for (int k = 0; k < 2; k++)
        for (int64_t q = 0; q < Q; q++)
            for (int64_t i = 0; i < wide; i++) {
                const float x = i < LENGTH - 1 ? all->nll[k][(c * Q + q) * (LENGTH - 1) + i] : 0;
                const float y = one->nll[k][q * wide + i];
                if (!near(x, y))
                    fail_msg("%s: context %d, reader %d, label %d: %g, alone %g", what, (int)c, k, (int)i + 1,
                             (double)x, (double)y);
            }
    for (int64_t i = 0; i < one->n_z; i++) assert_true(near(all->z[24 * c + i], one->z[i]));
}

/* The first values of the pooler's queries depend on the width of the texts: these have those of another rig. */
static void same_queries(rig *to, rig *from)
{
    static const char name[] = "encoder.pool.queries";
    const tn_entry *e = tn_store_find(tn_trainer_store(from->trainer), name);
    const tn_entry *x = tn_store_find(tn_trainer_store(to->trainer), name);
    tn_host_copy h = { 0 };
    assert_true(e && x && tn_dims_equal(e->dims, x->dims));
    const size_t bytes = sizeof(float) * (size_t)tn_dims_count(e->dims);
    const void *data = tn_store_read(tn_trainer_store(from->trainer), e->data, bytes, &h);
    assert_non_null(data);
    assert_ok(tn_store_write(tn_trainer_store(to->trainer), x->data, data, bytes));
    tn_host_copy_free(&h);
}

static void alone(void **state)
{
    static const sizes wide[] = { { 1, BYTES, LENGTH, TEXT, TOLD }, { 1, BYTES + 7, LENGTH + 5, TEXT + 4, TOLD + 9 } };
    rig many, one;
    seen all, all_told, x;
    open_rig(&many, &usual, *state, false);
    fill(&many, 0);
    look(&many, NULL, &all);
    look(&many, "text", &all_told);
    for (size_t k = 0; k < sizeof wide / sizeof *wide; k++) {
        open_rig(&one, &wide[k], *state, false);
        same_queries(&one, &many);
        for (int64_t c = 0; c < B; c++) {
            fill(&one, c);
            look(&one, NULL, &x);
            compare_rows(&all, &x, c, wide[k].length - 1, "message");
            look(&one, "text", &x);
            compare_rows(&all_told, &x, c, wide[k].length - 1, "text");
        }
        close_rig(&one);
    }
    close_rig(&many);
}

/* A message knows its text alone. Other tokens in question and answer of a row change neither Z nor what another row on the same
 * message says. */
static void no_leak(void **state)
{
    rig r;
    seen before, after;
    open_rig(&r, &usual, *state, false);
    fill(&r, 0);
    look(&r, NULL, &before);
    for (int k = 0; k < 2; k++) {
        int32_t *tokens = input(&r, k ? "b" : "a", ".tokens"), *labels = input(&r, k ? "b" : "a", ".labels");
        for (int i = 1; i < LENGTH; i++) {
            tokens[i] = 3 + (tokens[i] + 7) % (IDS - 3);
            labels[i] = i > 3 && i < LENGTH - 1 ? tokens[i] : -1; /* of another length, too */
        }
    }
    look(&r, NULL, &after);
    assert_true(tn_world_same(after.z, before.z, before.n_z, 1e-6));
    for (int k = 0; k < 2; k++) {
        assert_true(tn_world_distance(after.nll[k], before.nll[k], LENGTH - 1) > 1e-3);
        for (int64_t j = LENGTH - 1; j < after.n; j++) assert_true(same(after.nll[k][j], before.nll[k][j]));
    }
    close_rig(&r);
}

/* encode here and read there is eval; and what is read is the message. */
static void sent_and_read(void **state)
{
    static const char *const said[] = { "a.said", "b.said" };
    rig r;
    seen whole, apart;
    int64_t n;
    int32_t words[2][B * Q * (LENGTH - 1)];
    open_rig(&r, &usual, *state, false);
    tn_store *st = tn_trainer_store(r.trainer);
    fill(&r, 0);
    look(&r, NULL, &whole);
    for (int k = 0; k < 2; k++) memcpy(words[k], output_of(&r, NULL, said[k], &n), sizeof words[k]);
    assert_ok(tn_trainer_run_step(r.trainer, "encode"));
    const float *z = output_of(&r, "encode", "z", &n);
    const tn_entry *e = tn_store_find(st, "message");
    assert_non_null(e);
    assert_true(n == tn_dims_count(e->dims) && tn_world_same(z, whole.z, n, 1e-6));
    tn_memory_put(st, e->data, z, sizeof *z * (size_t)n);
    memset(input(&r, "", "bytes"), 0, sizeof(int32_t) * B * BYTES); /* nobody reads the text now */
    look(&r, "read", &apart);
    for (int k = 0; k < 2; k++) {
        assert_true(tn_world_same(apart.nll[k], whole.nll[k], whole.n, 1e-6));
        assert_memory_equal(output_of(&r, "read", said[k], &n), words[k], sizeof words[k]);
    }
    float other[B * 24];
    memcpy(other, whole.z, sizeof other);
    memcpy(other, whole.z + 48, sizeof *other * 24); /* context 0 gets the message of context 2 */
    tn_memory_put(st, e->data, other, sizeof other);
    look(&r, "read", &apart);
    for (int k = 0; k < 2; k++) {
        assert_true(tn_world_distance(apart.nll[k], whole.nll[k], Q * (LENGTH - 1)) > 1e-3);
        for (int64_t j = Q * (LENGTH - 1); j < whole.n; j++) assert_true(same(apart.nll[k][j], whole.nll[k][j]));
    }
    close_rig(&r);
}

#define TERMS "loss.first=0.5", "loss.kd=0.5", "loss.state=0.5", "loss.ae=0.5", "loss.nce=0.1"
static const char *const learns[][8] = {
    { TERMS, "place=embeddings", "refiner=1", NULL }, { TERMS, "place=keys", "private=1", NULL },
    { TERMS, "encoder=sender", "sender=b", NULL },    { TERMS, "encoder=free", "place=embeddings", NULL },
    { TERMS, "encoder=constant", "keep=1", NULL },
};

/* Everything that is trained has a gradient, readers have none, and a step changes the former alone. */
static void gradients(void **state)
{
    rig r;
    float loss;
    tn_update_result done;
    int frozen = 0, trained = 0;
    open_rig(&r, &usual, *state, true);
    fill(&r, 0);
    tn_store *st = tn_trainer_store(r.trainer);
    assert_ok(tn_trainer_grad(r.trainer, 0, &loss));
    float *before[256] = { NULL };
    const size_t count = tn_store_count(st);
    assert_true(count <= 256 && isfinite(loss));
    for (size_t i = 0; i < count; i++) {
        const tn_entry *e = tn_store_at(st, i);
        const int64_t n = tn_dims_count(e->dims);
        if (e->role != TN_ROLE_PARAM && e->role != TN_ROLE_FROZEN) continue;
        if ((e->role == TN_ROLE_PARAM) == of_reader(e)) { /* places, parts and to.x.rms are frozen and nobody's */
            const bool places = strstr(e->name, ".places") || strstr(e->name, ".parts") || strstr(e->name, ".rms");
            if (of_reader(e) || !places) fail_msg("%s has the wrong role", e->name);
        }
        before[i] = tn_memory_floats(st, e->data, n);
        if (e->role == TN_ROLE_FROZEN) {
            frozen++;
            assert_null(e->grad);
            continue;
        }
        float *g = tn_memory_floats(st, e->grad, n), most = 0;
        for (int64_t k = 0; k < n; k++) most = fmaxf(most, fabsf(g[k]));
        if (!(most > 0 && isfinite(most))) fail_msg("the gradient of %s is %g at most", e->name, (double)most);
        trained++;
        free(g);
    }
    assert_ok(tn_trainer_apply(r.trainer, 0, 1, loss, &done));
    assert_true(done.ok && frozen > 30 && trained > 30);
    for (size_t i = 0; i < count; i++) {
        const tn_entry *e = tn_store_at(st, i);
        if (!before[i]) continue;
        const bool equal = tn_memory_equal(st, e->data, before[i], sizeof **before * (size_t)tn_dims_count(e->dims));
        if (equal != (e->role == TN_ROLE_FROZEN)) fail_msg("%s %s", e->name, equal ? "stays" : "changes");
        free(before[i]);
    }
    close_rig(&r);
}

void tn_tests_wire(tn_test_list *l)
{
    tn_test_add(l, alignment, (void *)embeddings,
                "wire model: a label's state has read what stands before it (embeddings)");
    tn_test_add(l, alignment, (void *)keys, "wire model: a label's state has read what stands before it (keys)");
    tn_test_add(l, told_alignment, NULL, "wire model: a label's state has read what stands before it (text)");
    tn_test_add(l, told_nothing, NULL, "wire model: rows without a text");
    tn_test_add(l, behind, (void *)embeddings, "wire model: bytes behind a text change nothing in its message");
    tn_test_add(l, behind, (void *)of_sender,
                "wire model: tokens behind a sender's text change nothing in its message");
    tn_test_add(l, alone, (void *)embeddings, "wire model: a row alone or padded says the same (embeddings)");
    tn_test_add(l, alone, (void *)keys, "wire model: a row alone or padded says the same (keys)");
    tn_test_add(l, alone, (void *)of_sender, "wire model: a row alone or padded says the same (sender)");
    tn_test_add(l, no_leak, (void *)embeddings, "wire model: answers change no message (embeddings)");
    tn_test_add(l, no_leak, (void *)keys, "wire model: answers change no message (keys)");
    tn_test_add(l, sent_and_read, (void *)embeddings,
                "wire model: a message that is sent and read is eval (embeddings)");
    tn_test_add(l, sent_and_read, (void *)keys, "wire model: a message that is sent and read is eval (keys)");
    for (size_t i = 0; i < sizeof learns / sizeof *learns; i++)
        tn_test_add(l, gradients, (void *)learns[i], "wire model: gradients reach all but the readers (%s, %s)",
                    learns[i][5], learns[i][6]);
}
