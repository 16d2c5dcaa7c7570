/* Darknet's table of layers, which it prints before it runs a net. */
#include <stdlib.h>
#include <string.h>

#include "cli/session.h"

static const char *key_text(const struct dn_section *sec, const char *key, const char *def)
{
	struct dn_key *k = dn_section_find((struct dn_section *)sec, key);

	return k ? k->value : def;
}

/* An image, or as many numbers; @flat as Darknet prints layers that take their input as a vector */
static void dims(char *out, size_t cap, bool flat, int64_t w, int64_t h, int64_t c, int64_t all)
{
	if (flat || w < 1 || h < 1 || c < 1)
		snprintf(out, cap, "%12s%4lld", "", (long long)all);
	else
		snprintf(out, cap, "%4lld x%4lld x%4lld", (long long)w, (long long)h, (long long)c);
}

static bool flat_layer(const struct dn_layer *l)
{
	static const char *const names[] = { "connected", "dropout", "softmax", "cost", "logistic" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(l->ops->name, names[i]))
			return true;
	return false;
}

/* Layers that @key names, counted from the first layer: "9 7" for -1,-3 in layer 10 */
static void sources(char *out, size_t cap, const struct dn_layer *l, const char *key)
{
	const char *p = key_text(l->section, key, "");
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

/* The columns before the sizes, e.g. "conv     32  3 x 3 / 1" */
static void left_columns(char *out, size_t cap, const struct dn_layer *l)
{
	const char *name = l->ops->name;
	const char *stride = key_text(l->section, "stride", "1");
	char from[48];

	if (!strcmp(name, "convolutional")) {
		const char *size = key_text(l->section, "size", "1");

		snprintf(out, cap, "conv  %5lld %2s x%2s /%2s", (long long)l->out_c, size, size, stride);
	} else if (!strcmp(name, "maxpool")) {
		const char *size = key_text(l->section, "size", stride);

		snprintf(out, cap, "max         %2s x%2s /%2s", size, size, stride);
	} else if (!strcmp(name, "avgpool")) {
		snprintf(out, cap, "avg");
	} else if (!strcmp(name, "route")) {
		sources(from, sizeof(from), l, "layers");
		snprintf(out, cap, "route  %s", from);
	} else if (!strcmp(name, "shortcut")) {
		sources(from, sizeof(from), l, "from");
		snprintf(out, cap, "res  %4s", from);
	} else if (!strcmp(name, "dropout")) {
		snprintf(out, cap, "dropout       p = %.2f", strtod(key_text(l->section, "probability", "0.5"), NULL));
	} else {
		snprintf(out, cap, "%s", name);
	}
}

void session_print_layers(FILE *f, const struct dn_net *net)
{
	fprintf(f, "layer     filters    size              input                output\n");
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];
		bool flat = flat_layer(l);
		char left[64], in[80], out[80];

		left_columns(left, sizeof(left), l);
		dims(in, sizeof(in), flat, l->w, l->h, l->c, l->inputs);
		dims(out, sizeof(out), flat || !strcmp(l->ops->name, "avgpool"), l->out_w, l->out_h, l->out_c, l->outputs);
		fprintf(f, "%5d %-22s  %s   ->  %s", i, left, in, out);
		if (l->flops)
			fprintf(f, "  %5.3f BFLOPs", (double)l->flops / 1e9);
		fputc('\n', f);
	}
}
