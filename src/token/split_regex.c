/* The fallback for patterns without a scanner: PCRE2 in UTF and UCP mode, with bounds on its work, so that an
 * expression from a hostile file ends with an error and not in endless backtracking. ^ and $ are those of Oniguruma:
 * ends of lines. PCRE2's Unicode may be older than 16.0. */
#include "token/split.h"

#include "base/alloc.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    MATCH_LIMIT = 1000000,
    DEPTH_LIMIT = 10000,
    HEAP_LIMIT_KIB = 65536,
    PATTERN_LIMIT_BYTES = 65536,
    STACK_BYTES = 32 << 10,
    STACK_LIMIT_BYTES = 8 << 20 /* PCRE2's own 32 KiB are too few for groups that repeat over a long text */
};

struct tn_regex {
    pcre2_code *code;
};

struct tn_regex_match {
    pcre2_match_data *data;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
};

tn_status tn_regex_new(const char *pattern, tn_regex **out)
{
    int err = 0;
    PCRE2_SIZE where = 0;
    tn_status s = TN_OK;
    tn_regex *r = tn_alloc(sizeof *r);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!r || !context) TN_FAIL(TN_MEMORY, "out of memory for a regular expression; free memory and try again");
    pcre2_set_max_pattern_length(context, PATTERN_LIMIT_BYTES);
    r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &err, &where, context);
    if (!r->code) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(err, why, sizeof why);
        TN_FAIL(
            TN_BAD_FILE,
            "the tokenizer's split pattern is invalid at byte %zu: %s; use only syntax that PCRE2 and Oniguruma share",
            (size_t)where, (const char *)why);
    }
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without it matching is slower, nothing else */
    *out = r;
    r = NULL;
done:
    pcre2_compile_context_free(context);
    tn_regex_free(r);
    return s;
}

void tn_regex_free(tn_regex *r)
{
    if (!r) return;
    pcre2_code_free(r->code);
    tn_free(r);
}

tn_status tn_regex_match_new(const tn_regex *r, tn_regex_match **out)
{
    tn_regex_match *m = tn_alloc(sizeof *m);
    if (!m) return TN_MEMORY;
    m->data = pcre2_match_data_create_from_pattern(r->code, NULL);
    m->limits = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(STACK_BYTES, STACK_LIMIT_BYTES, NULL);
    if (!m->data || !m->limits || !m->stack) {
        tn_regex_match_free(m);
        return tn_error(TN_MEMORY, "out of memory for a regular expression; free memory and try again");
    }
    pcre2_jit_stack_assign(m->limits, NULL, m->stack);
    pcre2_set_match_limit(m->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(m->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(m->limits, HEAP_LIMIT_KIB);
    *out = m;
    return TN_OK;
}

void tn_regex_match_free(tn_regex_match *m)
{
    if (!m) return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
    pcre2_jit_stack_free(m->stack);
    tn_free(m);
}

tn_status tn_regex_find(const tn_regex *r, tn_regex_match *m, const char *text, size_t bytes, size_t from,
                        size_t *first, size_t *last)
{
    *first = *last = bytes;
    const int k =
        pcre2_match(r->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, m->data, m->limits);
    if (k == PCRE2_ERROR_NOMATCH) return TN_OK;
    if (k < 0) {
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(k, why, sizeof why);
        return tn_error(TN_BAD_FILE,
                        "the split pattern failed at byte %zu of the text: %s; use a tokenizer with a simpler pattern",
                        from, (const char *)why);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    if (v[0] < from || v[1] <= v[0])
        return tn_error(TN_BAD_FILE, "the split pattern matches backwards; \\K is not supported");
    *first = v[0];
    *last = v[1];
    return TN_OK;
}
