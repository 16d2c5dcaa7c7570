/* A checkpoint's meta.json beside good rank files. */
#include <errno.h>
#include <sys/stat.h>

#include "base/file.h"
#include "fuzz_net.h"
#include "io/ckpt.h"

static const char cfg[] =
	"[net]\nbatch=2\ninputs=3\nlearning_rate=.1\n[connected]\noutput=2\nbatch_normalize=1\nactivation=linear\n"
	"[cost]\ntype=sse\n";

/* FOLDER/5 of a net whose values are the initial ones */
static void save(struct dn_net *net, const char *folder)
{
	const struct dn_group alone = DN_GROUP_ALONE;
	const struct dn_ckpt_state state = { 5, 10, 7, 2, 1, "list", 4, 12345 };

	if (dn_ckpt_save(net, folder, &state, 0, &alone, NULL))
		abort();
}

static void make_seeds(const char *folder)
{
	struct dn_net *net = fuzz_net(cfg, true);
	char *text, *check;
	size_t n;

	save(net, fuzz_path("ckpt"));
	fuzz_net_close(net);
	if (dn_file_read(fuzz_path("ckpt/5/meta.json"), 1 << 20, &text, &n))
		abort();
	fuzz_seed(folder, "meta", text, n);
	check = strstr(text, "\"check\""); /* without it damage of the head goes further */
	if (!check)
		abort();
	memcpy(check, "\"chuck\"", 7);
	fuzz_seed(folder, "unchecked", text, n);
	dn_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct dn_net *net;
	struct dn_ckpt *c;
	float x[8];

	if (!net) {
		net = fuzz_net(cfg, true);
		save(net, fuzz_path("ckpt"));
	}
	fuzz_put(fuzz_path("ckpt/5/meta.json"), p, n);
	if (dn_ckpt_open(&c, fuzz_path("ckpt")))
		return 0;
	for (int i = 0; i < dn_ckpt_n_tensors(c); i++) {
		const struct dn_ckpt_tensor *t = dn_ckpt_tensor_at(c, i);

		(void)dn_ckpt_cover(c, t);
		(void)dn_ckpt_read(c, t->name, t->n > 4 ? t->n - 4 : 0, t->n > 4 ? 4 : t->n, x);
	}
	(void)dn_ckpt_load(c, net);
	dn_ckpt_close(c);
	(void)dn_ckpt_refuse(fuzz_path("ckpt"), net);
	return 0;
}
