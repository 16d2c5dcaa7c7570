/* Small nets on the reference backend for the fuzzers of readers that fill one. */
#ifndef DN_TESTS_FUZZ_NET_H
#define DN_TESTS_FUZZ_NET_H
#include "fuzz.h"

#include "backend/backend_priv.h"
#include "graph/net.h"
#include "train/whole_store.h"

/* What backend.c lists beside ref; nothing here opens it. */
const struct dn_backend dn_backend_cpu = { .name = "cpu" };

static inline struct dn_device *fuzz_device(void)
{
	static struct dn_device *dev;

	if (!dev && dn_backend_ref.open(DN_CPU(1), &dev))
		abort();
	return dev;
}

/* memory, store and initial values of a built net */
static inline int fuzz_net_ready(struct dn_net *net)
{
	int err = dn_whole_attach(net);

	if (!err)
		err = dn_net_alloc(net);
	if (!err)
		err = net->store.ops->alloc(net->store.self, net);
	return err ? err : dn_net_init_values(net);
}

/* The net of a good cfg; under test it stays until the process ends. */
__attribute__((unused)) static struct dn_net *fuzz_net(const char *text, bool train)
{
	const struct dn_net_options opt = { .world = 1, .train = train, .seed = 7 };
	struct dn_cfg *cfg;
	struct dn_net *net;

	if (dn_cfg_parse(&cfg, text, strlen(text), "fuzz.cfg", true) || dn_net_build(&net, cfg, fuzz_device(), &opt) ||
	    fuzz_net_ready(net))
		abort();
	return net;
}

__attribute__((unused)) static void fuzz_net_close(struct dn_net *net)
{
	struct dn_cfg *cfg = net->cfg;

	dn_net_destroy(net);
	dn_cfg_destroy(cfg);
	dn_backend_ref.close(fuzz_device());
}

#endif
