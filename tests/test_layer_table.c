/* What a layer type says of itself in the table, and what follows from it and from nothing else. */
#include <unistd.h>
#include "io/weights.h"
#include "net_help.h"

/* 9 floats behind a header of the version that writes connected layers transposed, or not */
static const char *file_of(int major, int n)
{
	static char path[64];
	const int32_t v[3] = { major, 0, 0 };
	const uint32_t seen = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/layer_table_%d.weights", (int)getpid());
	f = fopen(path, "wb");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fwrite(v, sizeof(v), 1, f);
	fwrite(&seen, sizeof(seen), 1, f);
	for (int i = 1; i <= n; i++) {
		const float x = (float)i;

		fwrite(&x, sizeof(x), 1, f);
	}
	fclose(f);
	return path;
}

static void flipped_is_a_key_of_the_types_that_know_it(void)
{
	/* [connected] has no such key: a warning, and no other meaning */
	static const char *const cfgs[] = { "[net]\nbatch=1\ninputs=2\n[connected]\noutput=3\n",
					    "[net]\nbatch=1\ninputs=2\n[connected]\noutput=3\nflipped=1\n" };

	for (int i = 0; i < 2; i++)
		for (int old = 0; old < 2; old++) {
			const struct dn_net_options o = { .world = 1 };
			struct net_help t;

			CHECK_OK_FATAL(net_help_build(&t, "ref", cfgs[i], &o));
			CHECK_EQ(strstr(t.warnings, "flipped") != NULL, i);
			CHECK_OK_FATAL(net_help_ready(&t, false));
			CHECK_OK(dn_weights_load(t.net, file_of(old ? 1001 : 0, 9), -1, false, NULL));
			for (int r = 0; r < 3; r++)
				for (int c = 0; c < 2; c++)
					CHECK_EQ(*peek(t.net, &t.net->params[1]->value[r * 2 + c], 1),
						 old ? 4 + c * 3 + r : 4 + r * 2 + c);
			net_help_close(&t);
		}
	unlink(file_of(0, 0));
}

static int plain_setup(struct dn_layer *l, struct dn_section *s)
{
	return dn_layer_set_out(l, l->w, l->h, l->c);
}

/* layers of a net whose types are replaced before a later one asks for its sources */
static void sources_follow_what_the_types_say(void)
{
	static const struct dn_layer_ops plain = { .name = "plain", .setup = plain_setup },
					 in_place = { .name = "in place", .setup = plain_setup, .in_place = true },
					 sink = { .name = "sink", .setup = plain_setup, .no_consumer = true };
	struct net_help t;
	struct dn_layer *l;
	const int zero = 0, one = 1;

	CHECK_OK_FATAL(net_help_build(
		&t, "ref", "[net]\nbatch=1\ninputs=2\n[activation]\n[activation]\n[activation]\n[activation]\n", NULL));
	l = &t.net->layers[3];
	for (int i = 0; i < 3; i++)
		t.net->layers[i].ops = &plain;
	CHECK_OK(dn_layer_set_inputs(l, 1, &zero));
	CHECK_EQ(l->inputs_of[0].layer, 0);
	t.net->layers[1].ops = &in_place;
	CHECK_OK(dn_layer_set_inputs(l, 1, &zero));
	CHECK_EQ(l->inputs_of[0].layer, 1);
	t.net->layers[2].ops = &in_place;
	CHECK_OK(dn_layer_set_inputs(l, 1, &zero));
	CHECK_EQ(l->inputs_of[0].layer, 2);
	t.net->layers[2].ops = &plain;
	t.net->layers[1].ops = &sink;
	CHECK_FAILS(dn_layer_set_inputs(l, 1, &one), -EINVAL, "layer 3 reads layer 1, a [sink]: it has no output to read");
	for (int i = 0; i < 3; i++) /* as they were built */
		t.net->layers[i].ops = dn_layer_find("activation");
	net_help_close(&t);
}

static const struct check_case cases[] = {
	{ "flipped_is_a_key_of_the_types_that_know_it", flipped_is_a_key_of_the_types_that_know_it },
	{ "sources_follow_what_the_types_say", sources_follow_what_the_types_say },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("layer_table", cases);
}
