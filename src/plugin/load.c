/* Finding, checking and keeping plugins: a name becomes a file, a file becomes a checked struct dn_plugin. */
#include "plugin/load.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* [a-z][a-z0-9_]*: what may be a section name, the prefix of flags and a file name at once */
static bool name_ok(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n > 60 || !islower((unsigned char)name[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) && name[i] != '_')
			return false;
	return true;
}

/* Folder @i of the search path into @out: $DARKNET_PLUGIN_PATH, then ../plugins of the program's real path. */
static bool search_dir(int i, char *out, size_t cap)
{
	const char *env = getenv("DARKNET_PLUGIN_PATH");
	char exe[PATH_MAX];
	char *slash;
	ssize_t n;
	int k;

	while (env && *env) {
		size_t len = strcspn(env, ":");

		if (len && i-- == 0) {
			k = snprintf(out, cap, "%.*s", (int)len, env);
			return k > 0 && (size_t)k < cap;
		}
		env += len + (env[len] == ':');
	}
	if (i)
		return false;
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n <= 0)
		return false;
	exe[n] = '\0';
	for (int up = 0; up < 2; up++) { /* the program, then bin/ */
		slash = strrchr(exe, '/');
		if (!slash)
			return false;
		*slash = '\0';
	}
	k = snprintf(out, cap, "%s/plugins", exe);
	return k > 0 && (size_t)k < cap;
}

static bool is_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

static bool find_name(const char *name, char *out, size_t cap)
{
	char dir[PATH_MAX];

	if (!name_ok(name))
		return false;
	for (int i = 0; search_dir(i, dir, sizeof(dir)); i++) {
		int k = snprintf(out, cap, "%s/%s.so", dir, name);

		if (k > 0 && (size_t)k < cap && is_file(out))
			return true;
	}
	return false;
}

static int not_found(const char *name)
{
	char dir[PATH_MAX];
	struct dn_buf dirs = { 0 };
	int err = dn_buf_add(&dirs, "", 0);

	for (int i = 0; !err && search_dir(i, dir, sizeof(dir)); i++)
		err = dn_buf_printf(&dirs, "%s%s", i ? ", " : "", dir);
	if (!err)
		err = dn_fail(-ENOENT, "plugin %.100s: no file %.100s.so in %s", name, name, dirs.s);
	dn_buf_fini(&dirs);
	return err;
}

static int check_tables(const struct dn_plugin *p, const char *path)
{
	if (p->options)
		for (const struct dn_option *o = p->options; o->key; o++)
			if (!o->key[0] || strchr(o->key, ' '))
				return dn_fail(-EINVAL, "%s: the plugin's option \"%s\": not a key", path, o->key);
	if (p->verbs)
		for (const struct dn_verb *v = p->verbs; v->name; v++)
			if (!v->run || !v->name[0] || v->name[0] == '-' || v->min_args > v->max_args)
				return dn_fail(-EINVAL, "%s: the plugin's verb \"%s\" is not complete", path, v->name);
	if (!p->init || !p->net_ready || !p->exit)
		return dn_fail(-EINVAL, "%s: the plugin lacks %s()", path,
			       !p->init	       ? "init"
			       : !p->net_ready ? "net_ready"
					       : "exit");
	return 0;
}

/* @wanted: the name it was sought by, NULL when it was given by path */
static int check(const struct dn_plugin *p, const char *path, const char *wanted)
{
	if (p->abi != DN_PLUGIN_ABI)
		return dn_fail(-EINVAL, "%s: plugin interface %u found, %u wanted: build it against this program", path, p->abi,
			       DN_PLUGIN_ABI);
	if (!p->build || strcmp(p->build, DN_BUILD_TAG))
		return dn_fail(-EINVAL, "%s: a \"%.60s\" build found, \"%s\" wanted: build program and plugin alike", path,
			       p->build ? p->build : "", DN_BUILD_TAG);
	if (!p->name || !name_ok(p->name))
		return dn_fail(-EINVAL, "%s: the plugin's name \"%.60s\" is not made of a-z, 0-9 and _", path,
			       p->name ? p->name : "");
	if (wanted && strcmp(p->name, wanted))
		return dn_fail(-EINVAL, "%s: the plugin calls itself %s, %s wanted", path, p->name, wanted);
	if (dn_cfg_is_layer(p->name) || !strcmp(p->name, "net") || !strcmp(p->name, "network") || !strcmp(p->name, "block") ||
	    !strcmp(p->name, "none"))
		return dn_fail(-EEXIST, "%s: the plugin's name %s is taken: [%s] means something else", path, p->name, p->name);
	return check_tables(p, path);
}

int dn_plugin_open(struct dn_loaded *out, const char *name)
{
	struct dn_loaded l = { 0 };
	const struct dn_plugin *const *entry;
	bool by_path = strchr(name, '/') != NULL;
	int err;

	if (by_path) {
		int k = snprintf(l.path, sizeof(l.path), "%s", name);

		if (k < 0 || (size_t)k >= sizeof(l.path))
			return dn_fail(-ENAMETOOLONG, "plugin: a path of %zu bytes is too long", strlen(name));
		if (access(l.path, R_OK))
			return dn_fail(-errno, "plugin %s: %s", l.path, strerror(errno));
	} else if (!find_name(name, l.path, sizeof(l.path))) {
		return not_found(name);
	}
	l.handle = dlopen(l.path, RTLD_NOW | RTLD_LOCAL);
	if (!l.handle)
		return dn_fail(-ENOEXEC, "plugin cannot be loaded: %s", dlerror()); /* the text names the file */
	entry = dlsym(l.handle, "dn_plugin_entry");
	if (!entry || !*entry) {
		err = dn_fail(-ENOEXEC, "%s: not a plugin: the symbol dn_plugin_entry is missing", l.path);
		goto err_close;
	}
	err = check(*entry, l.path, by_path ? NULL : name);
	if (err)
		goto err_close;
	l.p = *entry;
	*out = l;
	return 0;

err_close:
	dlclose(l.handle);
	return err;
}

void dn_plugin_close(struct dn_loaded *l)
{
	if (l->handle)
		dlclose(l->handle);
	memset(l, 0, sizeof(*l));
}

bool dn_plugin_exists(const char *name)
{
	char path[PATH_MAX];

	return find_name(name, path, sizeof(path));
}

struct names {
	int n;
	char **name;
};

static int names_add(struct names *s, const char *name)
{
	char **grown;

	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->name[i], name))
			return 0;
	grown = dn_grow(s->name, s->n, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	s->name = grown;
	s->name[s->n] = dn_strdup(name);
	if (!s->name[s->n])
		return -ENOMEM;
	s->n++;
	return 0;
}

static int names_read(struct names *s, const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int err = 0;

	if (!d)
		return 0; /* a folder of the search path need not exist */
	while (!err && (e = readdir(d)) != NULL) {
		size_t n = strlen(e->d_name);
		char name[64];

		if (n <= 3 || n - 3 >= sizeof(name) || strcmp(e->d_name + n - 3, ".so"))
			continue;
		memcpy(name, e->d_name, n - 3);
		name[n - 3] = '\0';
		if (name_ok(name))
			err = names_add(s, name);
	}
	closedir(d);
	return err;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int dn_plugin_each(int (*fn)(void *arg, const char *name, const char *path), void *arg)
{
	struct names s = { 0 };
	char path[PATH_MAX];
	int err = 0;

	for (int i = 0; !err && search_dir(i, path, sizeof(path)); i++)
		err = names_read(&s, path);
	if (s.n)
		qsort(s.name, (size_t)s.n, sizeof(*s.name), by_name);
	for (int i = 0; !err && i < s.n; i++)
		if (find_name(s.name[i], path, sizeof(path)))
			err = fn(arg, s.name[i], path);
	for (int i = 0; i < s.n; i++)
		dn_free(s.name[i]);
	dn_free(s.name);
	return err;
}

static int set_from_section(struct dn_options *o, struct dn_section *section)
{
	for (int i = 0; i < section->n_keys; i++) {
		struct dn_key *k = &section->keys[i];
		char where[PATH_MAX];
		int err;

		if (k->used)
			continue; /* a second equal key: the first wins */
		for (int j = i; j < section->n_keys; j++)
			if (!strcmp(section->keys[j].key, k->key))
				section->keys[j].used = true;
		snprintf(where, sizeof(where), "%.3000s:%d", section->file->path, k->line);
		err = dn_options_set(o, k->key, k->value, where);
		if (err == -ENOENT)
			return dn_fail(-EINVAL, "%s", dn_message()); /* -ENOENT is kept for unknown flags */
		if (err)
			return err;
	}
	return 0;
}

int dn_plugin_options(struct dn_options **out, const struct dn_plugin *p, struct dn_section *section, int n_flags,
		      const char *const *flags)
{
	static const struct dn_option none[] = { { .key = NULL } };
	size_t prefix = strlen(p->name);
	struct dn_options *o;
	int err;

	err = dn_options_create(&o);
	if (err)
		return err;
	err = dn_options_add(o, p->options ? p->options : none);
	if (err)
		goto err_destroy;
	if (section) {
		for (int i = 0; i < section->n_keys; i++)
			section->keys[i].used = false; /* ours alone: asked for below, or refused */
		err = set_from_section(o, section);
		if (err)
			goto err_destroy;
	}
	for (int i = 0; i < n_flags; i++) {
		const char *name = flags[2 * i];
		char where[128];

		if (strncmp(name, p->name, prefix) || name[prefix] != '.')
			continue; /* another plugin's */
		snprintf(where, sizeof(where), "-%.120s", name);
		err = dn_options_set(o, name + prefix + 1, flags[2 * i + 1], where);
		if (err)
			goto err_destroy;
	}
	*out = o;
	return 0;

err_destroy:
	dn_options_destroy(o);
	return err;
}
