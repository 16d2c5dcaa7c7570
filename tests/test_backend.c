/* The device contract: names, facts and memory of devices. */
#include <errno.h>
#include <omp.h>
#include "backend_help.h"

static void names_are_found_and_unknown_ones_list_the_choices(void)
{
#define NAME(row, name, of_input) [row] = name,
	static const char *const names[DN_ACTS] = { DN_ACT_TABLE(NAME) };
#undef NAME
	enum dn_act act = DN_ACTS;

	for (int a = 0; a < DN_ACTS; a++) {
		CHECK_OK(dn_act_find(names[a], &act));
		CHECK_EQ(act, a);
		CU_ASSERT_PTR_NOT_NULL(strstr(dn_act_names(), names[a]));
	}
	CHECK_EQ(dn_act_find("mush", &act), -EINVAL);
	CHECK_EQ(dn_act_find("", &act), -EINVAL);
	CU_ASSERT_PTR_NULL(dn_backend_find("gpu9"));
	CU_ASSERT_PTR_NOT_NULL(strstr(dn_message(), "cpu, ref"));
}

static void device_tells_facts_and_memory(void)
{
	for (const struct dn_backend *const *b = dn_backend_all(); *b; b++) {
		struct rig r = rig_open((*b)->name, 2);
		struct dn_facts f;
		size_t n_free = 0, total = 0;
		struct dn_device *none = NULL;
		void *p = NULL;

		r.be->facts(r.dev, &f);
		CHECK_STR(f.backend, (*b)->name);
		CHECK_EQ(f.align_bytes, DN_ALIGN);
		CHECK_OK(r.be->memory(r.dev, &n_free, &total));
		CU_ASSERT(n_free > 0 && n_free <= total);
		CHECK_OK(r.be->alloc(r.dev, DN_MEM_WORKSPACE, 1000, &p));
		CHECK_EQ((uintptr_t)p % DN_ALIGN, 0);
		CHECK_EQ(((char *)p)[999], 0);
		r.be->free(r.dev, p);
		p = NULL;
		CHECK_FAILS(r.be->alloc(r.dev, DN_MEM_ACTIVATIONS, total + (1 << 20), &p), -ENOMEM, "activations: ");
		CU_ASSERT_PTR_NULL(p);
		rig_close(&r);
		CHECK_FAILS((*b)->open(DN_CPU(0), &none), -EINVAL, "threads");
		CU_ASSERT_PTR_NULL(none);
	}
}

static void cpu_leaves_the_callers_thread_count_alone(void)
{
	struct rig cpu = rig_open("cpu", 3);
	int before = omp_get_max_threads();
	const struct dn_gemm_desc square = dn_gemm_dense(false, false, 2, 2, 2, 0);
	float a[4] = { 1, 2, 3, 4 }, c[4];

	CHECK_OK(cpu.be->gemm(cpu.st, &square, a, a, c));
	CHECK_EQ(omp_get_max_threads(), before);
	CU_ASSERT(c[0] == 7 && c[1] == 10 && c[2] == 15 && c[3] == 22);
	rig_close(&cpu);
}

static void failed_allocations_leak_nothing(void)
{
	const struct conv_case t = { 1, 4, 5, 5, 4, 3, 1, 1, 1, 1 };
	struct dn_conv_desc d = conv_desc(&t, true, true, DN_ACT_LEAKY);
	const struct dn_backend *be = dn_backend_find("cpu");
	struct dn_mem_stats before, after;
	bool passed = false;

	dn_mem_stats(DN_MEM_HOST, &before);
	for (uint64_t n = 1; n < 50 && !passed; n++) {
		struct dn_device *dev = NULL;
		struct dn_stream *st = NULL;
		struct dn_event *ev = NULL;
		struct dn_conv *cv = NULL;

		dn_mem_fail_at(n);
		passed = !be->open(DN_CPU(1), &dev) && !be->stream_create(dev, DN_STREAM_COMM, "s", 64, &st) &&
			 !be->event_create(dev, "e", 64, &ev) && !be->conv_create(dev, &d, &cv);
		dn_mem_fail_at(0);
		be->conv_destroy(cv);
		be->event_destroy(ev);
		be->stream_destroy(st);
		be->close(dev);
	}
	CU_ASSERT(passed);
	dn_mem_stats(DN_MEM_HOST, &after);
	CHECK_EQ(after.now_bytes, before.now_bytes);
}

static const struct check_case cases[] = {
	{ "names_are_found_and_unknown_ones_list_the_choices", names_are_found_and_unknown_ones_list_the_choices },
	{ "device_tells_facts_and_memory", device_tells_facts_and_memory },
	{ "cpu_leaves_the_callers_thread_count_alone", cpu_leaves_the_callers_thread_count_alone },
	{ "failed_allocations_leak_nothing", failed_allocations_leak_nothing },
	{ NULL, NULL },
};

int main(void)
{
	return check_run("backend", cases);
}
