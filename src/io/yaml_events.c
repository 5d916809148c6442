/* libyaml events, one at a time: a malformed file is refused where it goes wrong, and nothing is expanded. */
#include "io/yaml_events.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "io/yaml_settings.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

tn_status tn__yaml_next(yaml_parser_t *p, const char *name, yaml_event_t *e)
{
    if (yaml_parser_parse(p, e)) return TN_OK;
    if (p->error == YAML_MEMORY_ERROR) return tn_error(TN_MEMORY, "out of memory while reading %s", name);
    if (p->error == YAML_READER_ERROR)
        return tn_error(TN_BAD_FILE, "%s is not UTF-8 text: %s at byte %zu", name, p->problem, p->problem_offset);
    return TN__YAML_FAIL(name, TN_BAD_FILE, p->problem_mark.line + 1, "not valid YAML: %s",
                         p->problem ? p->problem : "?");
}

tn_status tn__yaml_plain(const yaml_event_t *e, const char *name)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e->type == YAML_ALIAS_EVENT) anchor = e->data.alias.anchor;
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    }
    if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    }
    if (anchor)
        return TN__YAML_FAIL(name, TN_BAD_FILE, tn__yaml_line(e), "%s: write the value itself",
                             "anchors and aliases are not read");
    if (tag)
        return TN__YAML_FAIL(name, TN_BAD_FILE, tn__yaml_line(e), "%s: the key gives the type", "tags are not read");
    return TN_OK;
}

tn_status tn__yaml_document(const yaml_event_t *e, const char *name, size_t *documents)
{
    if (++*documents > 1)
        return TN__YAML_FAIL(name, TN_BAD_FILE, tn__yaml_line(e), "%s", "a second document: keep one per file");
    if (e->data.document_start.tag_directives.start != e->data.document_start.tag_directives.end)
        return TN__YAML_FAIL(name, TN_BAD_FILE, tn__yaml_line(e), "%s: the key gives the type", "tags are not read");
    return TN_OK;
}

tn_status tn__yaml_too_large(const char *name)
{
    return tn_error(TN_BAD_FILE, "%s is larger than %d KiB: that is not a settings file", name,
                    TN_YAML_MAX_BYTES >> 10);
}

tn_status tn__yaml_load(const char *path, char **text, size_t *bytes)
{
    tn_status s = TN_OK;
    char *buf = NULL;
    int fd;
    if (access(path, F_OK) != 0) return tn_fs_error(TN_BAD_FILE, errno, "open", path);
    TN_RETURN_IF(tn_fd_open(path, &fd));
    FILE *f = fdopen(fd, "rb");
    if (!f) {
        close(fd);
        return tn_error(TN_MEMORY, "out of memory while reading %s", path);
    }
    buf = tn_alloc(TN_YAML_MAX_BYTES + 1);
    if (!buf) {
        s = TN_MEMORY;
        goto done;
    }
    const size_t n = fread(buf, 1, TN_YAML_MAX_BYTES + 1, f);
    if (ferror(f)) TN_FAIL(TN_BAD_FILE, "cannot read %s: %s", path, strerror(errno));
    *text = buf;
    *bytes = n;
    buf = NULL;
done:
    tn_free(buf);
    fclose(f);
    return s;
}
