/* The table of tasks, and which of them a net and a data set have. */
#include "train/task.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "train/task_priv.h"

const struct dn_resize task_darknet_sizes = { .every = 40, .step = 32, .first = 4, .n = 11 };

static const struct dn_net_task *const tasks[] = { &task_classifier, &task_dense };
#define N_TASKS (sizeof(tasks) / sizeof(tasks[0]))

const struct dn_net_task *dn_net_task_find(const char *name)
{
	for (size_t i = 0; i < N_TASKS; i++)
		if (!strcmp(tasks[i]->name, name))
			return tasks[i];
	return NULL;
}

static const struct dn_net_task *of_layer(const struct dn_layer *l)
{
	const struct dn_net_task *t = l->ops->task ? dn_net_task_find(l->ops->task) : NULL;

	assert(t || !l->ops->task); /* a layer type that names a task which no row has */
	return t;
}

const struct dn_net_task *dn_net_task_of(const struct dn_net *net)
{
	const struct dn_net_task *t = of_layer(&net->layers[net->output_layer]);

	return t ? t : &task_dense;
}

const struct dn_net_task *dn_net_task_for(const struct dn_net *net, const struct dn_dataset *data)
{
	const struct dn_net_task *t = dn_net_task_of(net);

	if (t->takes(data))
		return t;
	for (size_t i = 0; i < N_TASKS; i++)
		if (tasks[i]->takes(data))
			return tasks[i];
	return &task_dense; /* the loss says something of any truth */
}

bool dn_net_task_needs(const struct dn_layer *l)
{
	const struct dn_net_task *t = of_layer(l);

	return t && t->needs && t->needs(l);
}

double dn_result_field(const struct dn_result *r, const char *name)
{
	for (int i = 0; i < r->n_fields; i++)
		if (!strcmp(r->fields[i].name, name))
			return r->fields[i].value;
	return (double)NAN;
}
