/* Errors of processes that a launcher started, before they know one another. */
#ifndef DN_CLI_LAUNCH_H
#define DN_CLI_LAUNCH_H

/** launch_let_first_speak() - before MPI runs all ranks mostly fail alike: under mpirun the others wait a moment for rank 0, whose
 *  end makes mpirun end them; who is still there then speaks, too */
void launch_let_first_speak(void);
/** launch_error() - after that, @text on standard error, with the rank when there are several */
void launch_error(const char *text);

#endif
