/* Prompts of talks, for check_chat.py: reads JSON Lines {"tokenizer", "template" or "name", "date", "messages": [{"role",
 * "content"}]} and writes for each {"text", "ids"} or {"error"}. */
#include "token/chat_template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 64 };

static const char *text_of(const json_t *x, const char *key) { return json_string_value(json_object_get(x, key)); }

static tn_status prompt(const json_t *x, tn_tokenizer **t, tn_tokenizer_scratch *scratch, tn_text *text, tn_tokens *ids)
{
    static char opened[4096];
    tn_chat_template c;
    tn_chat_message m[MESSAGES] = { 0 };
    const json_t *list = json_object_get(x, "messages");
    const char *own = text_of(x, "template"), *path = text_of(x, "tokenizer"), *date = text_of(x, "date");
    if (!*t || strcmp(opened, path) != 0) {
        tn_tokenizer_free(*t);
        *t = NULL;
        snprintf(opened, sizeof opened, "%s", path);
        TN_RETURN_IF(tn_tokenizer_open(path, t));
    }
    TN_RETURN_IF(own ? tn_chat_template_recognise(own, &c) : tn_chat_template_named(text_of(x, "name"), &c));
    if (date) snprintf(c.date, sizeof c.date, "%s", date);
    const size_t n = json_array_size(list) < MESSAGES ? json_array_size(list) : MESSAGES;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(list, i), *content = json_object_get(one, "content");
        const char *role = text_of(one, "role");
        m[i] = (tn_chat_message){ role[0] == 's'   ? TN_CHAT_SYSTEM
                                  : role[0] == 'u' ? TN_CHAT_USER
                                                   : TN_CHAT_ASSISTANT,
                                  json_string_value(content), json_string_length(content) };
    }
    return tn_chat_prompt(&c, *t, scratch, m, n, text, ids);
}

int main(void)
{
    tn_tokenizer *t = NULL;
    tn_tokenizer_scratch *scratch = NULL;
    char *line = NULL;
    size_t capacity = 0;
    if (tn_tokenizer_scratch_new(&scratch) != TN_OK) return 1;
    while (getline(&line, &capacity, stdin) > 0) {
        tn_text text = { 0 };
        tn_tokens ids = { 0 };
        json_t *x = json_loads(line, JSON_ALLOW_NUL, NULL), *answer;
        if (prompt(x, &t, scratch, &text, &ids) != TN_OK) answer = json_pack("{s:s}", "error", tn_error_text());
        else {
            json_t *list = json_array();
            for (size_t i = 0; i < ids.n; i++) json_array_append_new(list, json_integer(ids.ids[i]));
            answer = json_pack("{s:s%, s:o}", "text", text.data ? text.data : "", text.n, "ids", list);
        }
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(answer);
        json_decref(x);
        tn_text_free(&text);
        tn_tokens_free(&ids);
    }
    free(line);
    tn_tokenizer_free(t);
    tn_tokenizer_scratch_free(scratch);
    return 0;
}
