/* What verbs share about data: opening the parts of a .data file for a session's net, and the names of its classes. */
#ifndef DN_CLI_SAMPLES_H
#define DN_CLI_SAMPLES_H
#include "cli/session.h"

/** samples_cifar() - where Darknet's cifar verbs look for the data, as a .data file */
int samples_cifar(struct dn_datafile **out);
/** samples_data_arg() - of cifar verbs: a first argument that ends in .data names the data; how many arguments that were */
int samples_data_arg(const struct dn_command *c, const char **path);
/** samples_usage() - the error of a wrong number of arguments after that */
int samples_usage(struct dn_command *c);
/** samples_open() - a part for @net; images are augmented by [net]'s keys in training, else fitted as Darknet's valid does */
int samples_open(struct dn_dataset **out, const struct dn_datafile *d, struct dn_net *net, bool valid, uint64_t seed);
/**
 * samples_try_valid() - before the first step: can the valid part be evaluated? Its headers, truth and, of a list, first image
 * @keep: it is wanted, and stays open there; NULL: valid may want it later, and what is not there yet is no fault.
 */
int samples_try_valid(struct dn_dataset **keep, const struct dn_datafile *d, struct dn_net *net, uint64_t seed);
/** samples_threads() - loader threads for such data beside @threads that compute */
int samples_threads(const struct dn_datafile *d, int threads);
/** samples_item() - its size and hash, which must be the same on all ranks; @d: where it was named */
int samples_item(struct session_items *items, const struct dn_dataset *ds, const struct dn_datafile *d);
/** samples_check_top() - @top is at most the net's classes; @where says who wants it */
int samples_check_top(int64_t top, const struct dn_net *net, const char *where);
/** samples_check_classes() - classes= is the number of the net's outputs */
int samples_check_classes(const struct dn_datafile *d, const struct dn_net *net);
/** samples_names() - names=, else labels=, else data/names.list: at least as many as the net has classes */
int samples_names(struct dn_lines *out, const struct dn_datafile *d, const struct dn_net *net);

#endif
