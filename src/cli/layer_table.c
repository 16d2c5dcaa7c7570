/* Darknet's table of layers, which it prints before it runs a net. */
#include "cli/session.h"

/* An image, or as many numbers; @flat as Darknet prints layers that take their input as a vector */
static void dims(char *out, size_t cap, bool flat, int64_t w, int64_t h, int64_t c, int64_t all)
{
	if (flat || w < 1 || h < 1 || c < 1)
		snprintf(out, cap, "%12s%4lld", "", (long long)all);
	else
		snprintf(out, cap, "%4lld x%4lld x%4lld", (long long)w, (long long)h, (long long)c);
}

void session_print_layers(FILE *f, const struct dn_net *net)
{
	fprintf(f, "layer     filters    size              input                output\n");
	for (int i = 0; i < net->n_layers; i++) {
		const struct dn_layer *l = &net->layers[i];
		const struct dn_layer_ops *ops = l->ops;
		char left[64], in[80], out[80];

		if (ops->describe)
			ops->describe(l, left, sizeof(left));
		else
			snprintf(left, sizeof(left), "%s", ops->name);
		dims(in, sizeof(in), ops->flat, l->w, l->h, l->c, l->inputs);
		dims(out, sizeof(out), ops->flat_out, l->out_w, l->out_h, l->out_c, l->outputs);
		fprintf(f, "%5d %-22s  %s   ->  %s", i, left, in, out);
		if (l->flops)
			fprintf(f, "  %5.3f BFLOPs", (double)l->flops / 1e9);
		fputc('\n', f);
	}
}
