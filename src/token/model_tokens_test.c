/* End tokens, start and template from the files beside a tokenizer. */
#include "token/model_tokens.h"

#include "base/alloc.h"
#include "tempdir.h"

#define TOKENIZER "tests/token/mini_qwen2.json"

typedef struct file {
    const char *name, *text; /* name NULL: the last */
} file;

static tn_status read_files(const file *files, const tn_tokenizer *t, tn_model_tokens *out)
{
    tn_tempdir d;
    tn_tempdir_make(&d);
    for (; files->name; files++)
        assert_ok(tn_file_write_atomic(tn_tempdir_file(&d, files->name), files->text, strlen(files->text)));
    *out = tn_model_tokens_of(t);
    const tn_status s = tn_model_tokens_read(d.path, t, out);
    if (s == TN_OK) { /* a tokenizer's file there says the same */
        tn_model_tokens again = tn_model_tokens_of(t);
        assert_ok(tn_model_tokens_read(tn_tempdir_file(&d, "tokenizer.json"), t, &again));
        assert_int_equal(again.n_end, out->n_end);
        tn_model_tokens_free(&again);
    }
    tn_tempdir_remove(&d);
    return s;
}

static bool ends(const tn_model_tokens *m, int32_t id)
{
    for (size_t i = 0; i < m->n_end; i++)
        if (m->end[i] == id) return true;
    return false;
}

static void folder(void **state)
{
    (void)state;
    tn_tokenizer *t;
    tn_model_tokens m;
    assert_ok(tn_tokenizer_open(TOKENIZER, &t));
    assert_ok(read_files((file[]){ { NULL, NULL } }, t, &m));
    assert_true(ends(&m, tn_tokenizer_find(t, "<|im_end|>")) && ends(&m, tn_tokenizer_find(t, "<|endoftext|>")));
    assert_null(m.chat_template);
    assert_false(ends(&m, 7) || ends(&m, 8) || ends(&m, 9));
    const file all[] = {
        { "config.json", "{\"eos_token_id\": 7, \"bos_token_id\": 5}" },
        { "generation_config.json", "{\"eos_token_id\": [7, 8, 9]}" },
        { "tokenizer_config.json",
          "{\"eos_token\": {\"content\": \"!\"}, \"add_bos_token\": false, \"chat_template\": "
          "[{\"name\": \"tool\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": \"y\"}]}" },
        { NULL, NULL }
    };
    assert_ok(read_files(all, t, &m));
    assert_true(ends(&m, 7) && ends(&m, 8) && ends(&m, 9) && ends(&m, tn_tokenizer_find(t, "!")));
    assert_false(ends(&m, 5));
    assert_int_equal(m.start, -1);
    assert_string_equal(m.chat_template, "y");
    tn_model_tokens_free(&m);
    const file jinja[] = { { "tokenizer_config.json", "{\"eos_token\": null, \"chat_template\": \"x\"}" },
                           { "chat_template.jinja", "{{ newer }}" },
                           { NULL, NULL } };
    assert_ok(read_files(jinja, t, &m));
    assert_string_equal(m.chat_template, "{{ newer }}");
    tn_model_tokens_free(&m);
    tn_tokenizer_free(t);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } rows[] = { { "config.json", "{\"eos_token_id\": 4000000000}",
                   "config.json: eos_token_id is 4000000000, and the" },
                 { "generation_config.json", "{\"eos_token_id\": -1}", "generation_config.json: eos_token_id is -1" },
                 { "generation_config.json", "{\"eos_token_id\": [1, \"2\"]}", "eos_token_id[1] is no integer" },
                 { "tokenizer_config.json", "{\"eos_token\": ", "tokenizer_config.json: line 1" } };
    tn_tokenizer *t;
    tn_model_tokens m;
    assert_ok(tn_tokenizer_open(TOKENIZER, &t));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_fails(read_files((file[]){ { rows[i].name, rows[i].text }, { NULL, NULL } }, t, &m), TN_BAD_FILE,
                     rows[i].says);
        tn_model_tokens_free(&m);
    }
    tn_tokenizer_free(t);
}

void tn_tests_model_tokens(tn_test_list *l)
{
    tn_test_add(l, folder, NULL, "model tokens: of a folder");
    tn_test_add(l, refused, NULL, "model tokens: damaged files");
}
