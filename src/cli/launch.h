/* Errors of processes that a launcher started, before they know one another. */
#ifndef DN_CLI_LAUNCH_H
#define DN_CLI_LAUNCH_H

/** launch_keep_args() - main()'s, for launch_short_waits() */
void launch_keep_args(char **argv);
/**
 * launch_short_waits() - before anything that computes with @threads (0: the default): threads that wait for one another spin
 * for some 50 us, then give their core away
 * By default OpenMP's spin for milliseconds, and on a core that others want as well the one that is waited for gets no time. As
 * its library reads the setting when it is loaded, the program starts itself once more, in the same process. Not with one
 * thread, nor where OMP_WAIT_POLICY or GOMP_SPINCOUNT is set: what the user set holds.
 */
void launch_short_waits(int threads);

/** launch_let_first_speak() - before MPI runs all ranks mostly fail alike: under mpirun the others wait a moment for rank 0, whose
 *  end makes mpirun end them; who is still there then speaks, too */
void launch_let_first_speak(void);
/** launch_error() - after that, @text on standard error, with the rank when there are several */
void launch_error(const char *text);

#endif
