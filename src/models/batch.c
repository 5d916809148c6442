/* A batch's inputs, numbers and requested outputs by name, looked up while a graph is built. */
#include <tenon/model.h>

#include <math.h>
#include <string.h>

tn_ref tn_in(const tn_batch *b, const char *name)
{
    for (size_t i = 0; i < b->n_inputs; i++)
        if (strcmp(b->input[i].name, name) == 0) return b->input[i].ref;
    return TN_NONE;
}

bool tn_wants(const tn_batch *b, const char *output)
{
    for (size_t i = 0; i < b->n_wants; i++)
        if (strcmp(b->want[i], output) == 0) return true;
    return false;
}

double tn_number(const tn_batch *b, const char *name)
{
    for (size_t i = 0; i < b->n_numbers; i++)
        if (strcmp(b->number[i].name, name) == 0) return b->number[i].value;
    return NAN;
}

void tn_batch_add(tn_batch *b, const char *name, tn_ref x)
{
    size_t i = 0;
    while (i < b->n_inputs && strcmp(b->input[i].name, name) != 0) i++;
    if (i == TN_BATCH_INPUTS) return; /* more than a model can declare */
    b->input[i].name = name;
    b->input[i].ref = x;
    if (i == b->n_inputs) b->n_inputs++;
}

void tn_batch_want(tn_batch *b, const char *output)
{
    if (b->n_wants < TN_BATCH_WANTS && !tn_wants(b, output)) b->want[b->n_wants++] = output;
}

void tn_batch_number(tn_batch *b, const char *name, double value)
{
    if (b->n_numbers < TN_BATCH_NUMBERS) b->number[b->n_numbers++] = (tn_source_number){ name, value };
}
