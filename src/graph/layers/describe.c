/* What layers put into their lines of Darknet's table: keys as the cfg has them, and the layers that they read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/layers/layers_priv.h"

const char *layer_key(const struct dn_layer *l, const char *key, const char *def)
{
	const struct dn_key *k = dn_section_find(l->section, key);

	return k ? k->value : def;
}

void layer_sources(const struct dn_layer *l, const char *key, char *out, size_t cap)
{
	const char *p = layer_key(l, key, "");
	size_t n = 0;

	out[0] = 0;
	while (*p && n + 1 < cap) {
		char *end;
		long v = strtol(p, &end, 10);

		if (end == p)
			break;
		n += (size_t)snprintf(out + n, cap - n, "%s%ld", n ? " " : "", v < 0 ? l->index + v : v);
		p = end + strspn(end, " \t,");
	}
}
