/* Help about the sections of a cfg and about .data files, printed from the tables that read them. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "data/datafile.h"
#include "graph/cfg.h"

#define FAR 1e15 /* a bound that nobody meets */

void cli_put(const struct cli_page *p, const char *s)
{
	if (!p->man) {
		fputs(s, p->f);
		return;
	}
	if (*s == '.' || *s == '\'')
		fputs("\\&", p->f);
	for (; *s; s++) {
		if (*s == '-')
			fputs("\\-", p->f);
		else if (*s == '\\')
			fputs("\\e", p->f);
		else
			fputc(*s, p->f);
	}
}

void cli_put_in(const struct cli_page *p, const char *lead, const char *s, const char *end)
{
	cli_put(p, lead);
	cli_put(p, s);
	cli_put(p, end);
}

static void print_key(const struct cli_page *p, const struct dn_key_rule *r)
{
	char text[80] = "";

	if (p->man)
		cli_put_in(&(struct cli_page){ p->f, false }, ".TP\n.B ", r->key, "\n");
	else
		fprintf(p->f, "  %-20s ", r->key);
	cli_put(p, r->help);
	if (r->names)
		cli_put_in(p, ": ", r->names(), "");
	if (r->kind == DN_KEY_INTS || r->kind == DN_KEY_FLOATS)
		cli_put(p, " [list]");
	if (r->max >= FAR && r->min >= 0)
		snprintf(text, sizeof(text), " [from %.0f]", r->min);
	else if (r->max > 0 && r->max < FAR)
		snprintf(text, sizeof(text), " [%.0f to %.0f]", r->min, r->max);
	cli_put(p, text);
	if (r->def) {
		cli_put_in(p, " (default ", r->def, ")");
	} else if (r->from && r->more) {
		snprintf(text, sizeof(text), " %c %lld)", r->more < 0 ? '-' : '+', llabs((long long)r->more));
		cli_put_in(p, " (default: ", r->from, text);
	} else if (r->from || r->otherwise) {
		cli_put_in(p, " (default: ", r->from ? r->from : r->otherwise, ")");
	}
	fputc('\n', p->f);
}

/* Those without help of their own on one line: "clip=0, truth=0" */
static void print_names(const struct cli_page *p, const struct dn_key_rule *r, enum dn_key_kind kind, const char *lead)
{
	int n = 0;

	for (; r && r->key; r++) {
		if (r->kind != kind)
			continue;
		if (!n++)
			fprintf(p->f, "%s%s: ", p->man ? ".PP\n" : "  ", lead);
		else
			fputs(", ", p->f);
		cli_put(p, r->key);
		if (kind == DN_KEY_ONLY)
			cli_put_in(p, "=", r->def, "");
	}
	if (n)
		fputc('\n', p->f);
}

static void print_table(const struct cli_page *p, const struct dn_key_rule *table)
{
	for (const struct dn_key_rule *r = table; r && r->key; r++)
		if (r->kind != DN_KEY_ONLY && r->kind != DN_KEY_NOTHING)
			print_key(p, r);
	print_names(p, table, DN_KEY_ONLY, "any other value is refused");
	print_names(p, table, DN_KEY_NOTHING, "known, without effect");
}

/* @summary NULL: none */
static void print_head(const struct cli_page *p, const char *name, const char *summary)
{
	if (p->man)
		fputs(".SS ", p->f);
	cli_put(p, name);
	fputs(p->man ? "\n" : summary ? ": " : ":\n", p->f);
	if (summary)
		cli_put_in(p, "", summary, "\n");
}

static void print_section(const struct cli_page *p, const struct dn_section_kind *kind)
{
	char head[200];

	snprintf(head, sizeof(head), kind->alias ? "[%s], also [%s]" : "[%s]", kind->name, kind->alias);
	print_head(p, head, kind->summary);
	print_table(p, kind->keys);
}

static void print_data_files(const struct cli_page *p)
{
	print_head(p, ".data files", NULL);
	print_table(p, dn_datafile_keys);
}

bool cli_help_section(FILE *f, const char *word, bool more)
{
	const struct cli_page page = { f, false };
	struct dn_section_kind kind;
	char name[80];
	size_t n = strlen(word);

	if (!strcmp(word, ".data")) {
		print_data_files(&page);
		return true;
	}
	if (n > 2 && word[0] == '[' && word[n - 1] == ']') {
		word++;
		n -= 2;
	}
	if (n >= sizeof(name))
		return false;
	memcpy(name, word, n);
	name[n] = '\0';
	if (!dn_section_kind_find(name, &kind))
		return false;
	if (more)
		fputc('\n', f);
	print_section(&page, &kind);
	if (kind.common) {
		fprintf(f, "keys of every layer:\n");
		print_table(&page, kind.common);
	}
	return true;
}

void cli_print_sections(const struct cli_page *p)
{
	const char *between = p->man ? "" : "\n";
	const struct dn_key_rule *common = NULL;
	struct dn_section_kind kind;

	for (int i = 0; dn_section_kind(i, &kind); i++) {
		if (kind.common && !common) {
			common = kind.common;
			fputs(between, p->f);
			print_head(p, "Every layer of a cfg", NULL);
			print_table(p, common);
		}
		fputs(between, p->f);
		print_section(p, &kind);
	}
	fputs(between, p->f);
	print_data_files(p);
}
