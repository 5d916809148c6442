/* Files of studies: refused, or a plan whose parts are there. Models are not asked (tn_study_check): they may be programs. */
#include "fuzz_file.h"
#include "lab/study/study.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    tn_arena arena = { 0 };
    tn_study_plan p;
    const tn_status s = tn_study_parse((const char *)input, bytes, "fuzz.yaml", NULL, 0, &arena, &p);
    if (s != TN_OK) fuzz_refused(s);
    else {
        CHECK(p.name && p.name[0] && !strchr(p.name, '/'));
        CHECK(p.n_sides > 0 && p.n_objectives > 0 && p.sampler && p.pruner && p.trials > 0);
        for (size_t i = 0; i < p.n_sides; i++) CHECK(p.sides[i].name && !strchr(p.sides[i].name, '/'));
    }
    tn_arena_free(&arena);
    return 0;
}
