/* Help about the sections of a cfg and about .data files, printed from the tables that read them. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "data/datafile.h"
#include "graph/cfg.h"

#define FAR 1e15 /* a bound that nobody meets */

static void print_key(FILE *f, const struct dn_key_rule *r)
{
	fprintf(f, "  %-20s %s", r->key, r->help);
	if (r->names)
		fprintf(f, ": %s", r->names());
	if (r->kind == DN_KEY_INTS || r->kind == DN_KEY_FLOATS)
		fprintf(f, " [list]");
	if (r->max >= FAR && r->min >= 0)
		fprintf(f, " [from %.0f]", r->min);
	else if (r->max > 0 && r->max < FAR)
		fprintf(f, " [%.0f to %.0f]", r->min, r->max);
	if (r->def)
		fprintf(f, " (default %s)", r->def);
	else if (r->from && r->more)
		fprintf(f, " (default: %s %c %lld)", r->from, r->more < 0 ? '-' : '+', llabs((long long)r->more));
	else if (r->from || r->otherwise)
		fprintf(f, " (default: %s)", r->from ? r->from : r->otherwise);
	fputc('\n', f);
}

/* Those without help of their own on one line: "clip=0, truth=0" */
static void print_names(FILE *f, const struct dn_key_rule *r, enum dn_key_kind kind, const char *lead)
{
	const char *between = lead;

	for (; r && r->key; r++)
		if (r->kind == kind) {
			fprintf(f, "%s%s%s%s", between, r->key, kind == DN_KEY_ONLY ? "=" : "",
				kind == DN_KEY_ONLY ? r->def : "");
			between = ", ";
		}
	if (between != lead)
		fputc('\n', f);
}

static void print_table(FILE *f, const struct dn_key_rule *table)
{
	for (const struct dn_key_rule *r = table; r && r->key; r++)
		if (r->kind != DN_KEY_ONLY && r->kind != DN_KEY_NOTHING)
			print_key(f, r);
	print_names(f, table, DN_KEY_ONLY, "  any other value is refused: ");
	print_names(f, table, DN_KEY_NOTHING, "  known, without effect: ");
}

static void print_head(FILE *f, const struct dn_section_kind *kind)
{
	fprintf(f, "[%s]", kind->name);
	if (kind->alias)
		fprintf(f, ", also [%s]", kind->alias);
	fprintf(f, ": %s\n", kind->summary);
}

static void print_data_files(FILE *f)
{
	fprintf(f, ".data files:\n");
	print_table(f, dn_datafile_keys);
}

bool cli_help_section(FILE *f, const char *word, bool more)
{
	struct dn_section_kind kind;
	char name[80];
	size_t n = strlen(word);

	if (!strcmp(word, ".data")) {
		print_data_files(f);
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
	print_head(f, &kind);
	print_table(f, kind.keys);
	if (kind.common) {
		fprintf(f, "keys of every layer:\n");
		print_table(f, kind.common);
	}
	return true;
}

void cli_print_sections(FILE *f)
{
	const struct dn_key_rule *common = NULL;
	struct dn_section_kind kind;

	for (int i = 0; dn_section_kind(i, &kind); i++) {
		if (kind.common && !common) {
			common = kind.common;
			fprintf(f, "\nEvery layer of a cfg:\n");
			print_table(f, common);
		}
		fputc('\n', f);
		print_head(f, &kind);
		print_table(f, kind.keys);
	}
	fputc('\n', f);
	print_data_files(f);
}
