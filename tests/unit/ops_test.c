/* What every line of ops.def promises: one op under its own name, a folder with a header that says the formula's shapes
 * and a test file, and a switch whose key, settings row and plain twin belong together. Reads the sources, so it has to
 * run in the root of the tree. */
#include "base/alloc.h"
#include "base/fs.h"
#include "ops/absorb.h"
#include "plan/plan.h"
#include "testlib.h"

#include <tenon/op.h>

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of src/ops/NAME/NAME<suffix>, to be freed with tn_free. */
static void read_source(const char *op, const char *suffix, char **text)
{
    char path[512];
    snprintf(path, sizeof path, "src/ops/%s/%s%s", op, op, suffix);
    assert_ok(tn_file_read_all(path, 1 << 20, text, NULL));
}

static void listed_once(void **state)
{
    (void)state;
    for (size_t i = 0; tn_op_at(i); i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(tn_op_at(i)->name, tn_op_at(k)->name) == 0)
                fail_msg("%s is in ops.def twice", tn_op_at(i)->name);
    for (size_t i = 0; tn_op_at(i); i++) assert_ptr_equal(tn_op_find(tn_op_at(i)->name), tn_op_at(i));
    assert_null(tn_op_find("no such op"));
}

/* The comment before the guard: "NAME: ...", at least one tensor with its shape, as in "x (B,T,d)" or "w (n,k)". */
static void header_has_shapes(void **state)
{
    const tn_op *op = *state;
    char *text = NULL, opening[64];
    regex_t shape;
    assert_int_equal(regcomp(&shape, "shape|[^A-Za-z0-9_]\\((\\.\\.\\.|[A-Z0-9a-z]{1,2})(, ?[A-Za-z0-9.+*/]{1,9})*\\)",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    read_source(op->name, ".h", &text);
    char *guard = strstr(text, "\n#ifndef");
    assert_non_null(guard);
    *guard = 0;
    snprintf(opening, sizeof opening, "/* %s: ", op->name);
    if (strncmp(text, opening, strlen(opening)) != 0) fail_msg("%s.h does not open with \"%s\"", op->name, opening);
    const bool found = regexec(&shape, text, 0, NULL, 0) == 0;
    regfree(&shape);
    tn_free(text);
    if (!found) fail_msg("%s.h: its comment states no shape", op->name);
}

/* The tests of every op are in its own folder and are more than one. */
static void has_tests(void **state)
{
    const tn_op *op = *state;
    char *text = NULL, entry[128];
    read_source(op->name, "_test.c", &text);
    snprintf(entry, sizeof entry, "void tn_tests_%s(", op->name);
    if (!strstr(text, entry)) fail_msg("%s_test.c does not define %s", op->name, entry);
    int tests = 0;
    for (const char *p = text; (p = strstr(p, "tn_test_add(l")); p++) tests++;
    const bool rows = strstr(text, "tn_optest_add(l") && strstr(text, ".n_properties");
    tn_free(text);
    if (!rows && tests < 3) fail_msg("%s_test.c: neither rows with properties nor three tests", op->name);
}

static void runs_somewhere(void **state)
{
    const tn_op *op = *state;
    assert_non_null(op->infer);
    assert_non_null(op->kernel[TN_CPU].forward);
    if (!op->grad && op->kernel[TN_CPU].backward) fail_msg("%s has a backward kernel and no gradient rule", op->name);
    if (op->grad && !op->kernel[TN_CPU].backward) fail_msg("%s has a gradient rule and no backward kernel", op->name);
}

static void check_row(const char *owner, const tn_setting *row)
{
    if (strncmp(row->key, "opt.", 4) != 0 || !row->key[4])
        fail_msg("%s: a switch is called opt.NAME, not %s", owner, row->key);
    if (row->type != TN_TYPE_SWITCH) fail_msg("%s: %s is not an on/off setting", owner, row->key);
    if (!row->help || strlen(row->help) < 10) fail_msg("%s: %s says nothing", owner, row->key);
}

static void switch_belongs(void **state)
{
    const tn_op *op = *state;
    assert_true(!op->switch_name == !op->plain);
    assert_true(!op->switch_name == !op->switch_row);
    if (!op->switch_name) return;
    check_row(op->name, op->switch_row);
    assert_string_equal(op->switch_row->key, op->switch_name);
    for (size_t i = 0; tn_op_at(i) != op; i++)
        if (tn_op_at(i)->switch_name) assert_string_not_equal(tn_op_at(i)->switch_name, op->switch_name);
    for (size_t i = 0; i < tn_plan_switches_n; i++) assert_string_not_equal(tn_plan_switches[i].key, op->switch_name);
}

static bool is_planner_switch(const char *name)
{
    for (size_t i = 0; i < tn_plan_switches_n; i++)
        if (strcmp(tn_plan_switches[i].key, name) == 0) return true;
    return false;
}

/* What the planner calls where a number says that it may. */
static void fusion_belongs(void **state)
{
    const tn_op *op = *state;
    const tn_fusion *f = &op->fusion;
    assert_true(!f->sum_in == !f->sum_out);
    assert_true(!f->pre_out == !f->is_gelu);
    assert_true(!f->packed_in == !f->weight_in && !f->packed_in == !f->packs);
    for (const tn_absorb_rule *r = f->absorbs; r && r->switch_name; r++) {
        assert_non_null(r->takes);
        if (!is_planner_switch(r->switch_name)) fail_msg("%s: the planner has no switch %s", op->name, r->switch_name);
    }
}

static void planner_switches(void **state)
{
    (void)state;
    assert_true(tn_plan_switches_n > 0);
    for (size_t i = 0; i < tn_plan_switches_n; i++) check_row("the planner", &tn_plan_switches[i]);
}

void tn_tests_ops(tn_test_list *l)
{
    tn_test_add(l, listed_once, NULL, "ops: each is listed once");
    tn_test_add(l, planner_switches, NULL, "ops: switches of the planner");
    for (size_t i = 0; tn_op_at(i); i++) {
        const tn_op *op = tn_op_at(i);
        tn_test_add(l, header_has_shapes, op, "ops: %s.h states shapes", op->name);
        tn_test_add(l, has_tests, op, "ops: %s has tests", op->name);
        tn_test_add(l, runs_somewhere, op, "ops: %s has its kernels", op->name);
        tn_test_add(l, fusion_belongs, op, "ops: what %s takes in", op->name);
        tn_test_add(l, switch_belongs, op, "ops: the switch of %s, or none", op->name);
    }
}
