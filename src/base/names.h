/* One table a choice: a list macro X(row, ...) whose rows give the enum, the table and the text that lists the names.
 *
 *	#define FRUITS(X) X(APPLE, "apple") X(PEAR, "pear")
 *	static const char *const names[] = { FRUITS(ROW) };
 *	const char *fruit_names(void) { return DN_NAMES(FRUITS); }	"apple, pear"
 */
#ifndef DN_BASE_NAMES_H
#define DN_BASE_NAMES_H

/* rows whose second part is the name; more parts may follow */
#define DN_NAMES_ROW_(row, name, ...) ", " name
#define DN_NAMES(list) (&(list(DN_NAMES_ROW_))[2])

#endif
