/* What the files of `net` share. x (B,S), a surface of S = width x height cells, gives logits (B,C) or another surface (B,S).
 *
 * Files: net_config.c settings and rows; net.c head and loss; net_kinds.c the five networks. */
#ifndef TN_MODELS_NET_NET_H
#define TN_MODELS_NET_NET_H

#include "models/blocks.h"

/* In the order of the choices in the settings. */
typedef enum net_kind { NET_LINEAR, NET_MLP, NET_CELL_MLP, NET_CONV, NET_PATCHES, NET_KINDS } net_kind;

typedef struct net_config {
    net_kind kind;
    int64_t cells, width, height; /* width 0: the kind does not ask where a cell is */
    int64_t classes;              /* 0: a surface is wanted */
    int64_t dim, layers, patch, heads, ffn;
    float dropout;
} net_config;

tn_status net_config_read(const tn_settings *st, const tn_graph *g, const tn_batch *b, net_config *c);
tn_status net_build(tn_graph *g, const tn_settings *st, const tn_batch *b);

typedef struct net {
    tn_graph *g;
    const net_config *c;
    int64_t batch;
} net;

/* A weight (n,k) and its bias under SCOPE.w and SCOPE.b; deviation gain/sqrt(k). */
typedef struct net_affine {
    tn_ref w, b;
} net_affine;
net_affine net_affine_make(tn_graph *g, const char *scope, int64_t n, int64_t k, float gain);

/* What the head reads (B,.), or, where a surface is wanted, that: (B,S). */
tn_ref net_kind_forward(const net *n, tn_ref x);

#endif
