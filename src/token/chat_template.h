/* Prompts of talks in the forms that published models were trained with. A template's own program (Jinja) is not run: its
 * kind and its variant are recognised from the markers in it, and a kind that is not here is refused.
 *
 *   chatml   <|im_start|>user\nTEXT<|im_end|>\n ...                        Qwen, SmolLM2 and many others
 *   llama2   <s>[INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nTEXT [/INST] ANSWER </s> ...
 *   llama3   <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|> ...
 *   mistral  <s>[INST] TEXT[/INST] ANSWER</s> ...                          spaces as the template has them
 *
 * Markers that are tokens are put by their ids and all else is encoded as plain text: whatever a person writes never becomes a
 * control token. Where a template's marker is no token (Llama 2's [INST] and <<SYS>>), a text of a person or a system text that
 * contains it is refused, because nothing would tell the two apart.
 *
 * System text: ChatML templates may have one of their own (Qwen's "You are ..."), which stands where none is given. Llama 3.1
 * and later always begin with lines of dates: the day that the template names, or today where it asks the clock. */
#ifndef TN_TOKEN_CHAT_TEMPLATE_H
#define TN_TOKEN_CHAT_TEMPLATE_H

#include "token/tokenizer.h"

typedef enum tn_chat_kind { TN_CHAT_CHATML, TN_CHAT_LLAMA2, TN_CHAT_LLAMA3, TN_CHAT_MISTRAL } tn_chat_kind;

enum { TN_CHAT_SYSTEM_MAX = 4096 };

typedef struct tn_chat_template {
    tn_chat_kind kind;
    bool bos;                        /* chatml: the prompt begins with BOS */
    bool trims;                      /* texts lose the whitespace at their ends */
    bool forgets_thoughts;           /* of an answer only what follows </think> is kept */
    bool has_default;                /* chatml: a system text of its own, */
    char system[TN_CHAT_SYSTEM_MAX]; /* this one */
    bool dates, today;               /* llama3: the lines of dates; the day is today's */
    char date[32];                   /* "26 Jul 2024" */
    /* mistral: spaces before and after [INST], before [/INST], before an answer, after </s>; answers are trimmed; a system
     * text has a place, which is in the last text of the person (else in the first) */
    bool before_open, after_open, before_close, before_answer, after_end, trims_answer, takes_system, system_last;
} tn_chat_template;

/* "chatml", "llama2", "llama3" (no dates), "mistral" (that of v0.3); TN_USAGE names them. */
tn_status tn_chat_template_named(const char *name, tn_chat_template *out);
/* From the text of a model's own; TN_USAGE, with the way to name one, where no kind is recognised. */
tn_status tn_chat_template_recognise(const char *text, tn_chat_template *out);
const char *tn_chat_template_name(const tn_chat_template *t);

typedef enum tn_chat_role { TN_CHAT_SYSTEM, TN_CHAT_USER, TN_CHAT_ASSISTANT } tn_chat_role;
typedef struct tn_chat_message {
    tn_chat_role role;
    const char *text; /* (bytes) UTF-8 */
    size_t bytes;
} tn_chat_message;

/* The prompt for the next answer: a system text or none, then person and model in turn; the last is the person's. Appends to
 * `text` what apply_chat_template(add_generation_prompt=True) of transformers writes and to `ids` its tokens; either may be
 * NULL. TN_USAGE: the messages are not in that order, or one cannot be written in this template. */
tn_status tn_chat_prompt(const tn_chat_template *c, const tn_tokenizer *t, tn_tokenizer_scratch *x,
                         const tn_chat_message *m, size_t n, tn_text *text, tn_tokens *ids);

#endif
