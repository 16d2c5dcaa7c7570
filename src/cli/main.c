/* The program: safe standard streams, one command, its exit status. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/launch.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/launch.h"

/* A file opened later must not become fd 0 to 2 and receive what is meant for a stream. */
static void open_std_fds(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
			_exit(1);
}

/* Large blocks go back to the system when they are freed. By default the bound of "large" grows with the first such block, and
 * the math library's temporary buffers then scatter over a heap that grows for many steps, beside everything planned. */
static void keep_heap_small(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

static void print_error(int err)
{
	const char *text = dn_message();
	char number[64];

	snprintf(number, sizeof(number), "error %d (%s)", -err, strerror(-err));
	launch_error(text[0] ? text : number);
}

int main(int argc, char **argv)
{
	struct dn_loaded plugin = { 0 };
	struct dn_command c = { .out = stdout };
	struct dn_launch l;
	int status = 0;
	int err;

	launch_keep_args(argv);
	open_std_fds();
	keep_heap_small();
	signal(SIGPIPE, SIG_IGN); /* a closed pipe and a full quota are write errors, with a message */
	signal(SIGXFSZ, SIG_IGN);
	dn_launch_read(&l);
	dn_log_quiet(l.rank > 0);

	err = cli_parse(&c, &plugin, argc, argv, &status);
	if (!err) {
		err = c.verb->run(&c);
		status = err ? dn_exit_status(err) : c.exit_status;
	}
	if (err < 0)
		print_error(err);
	cli_command_fini(&c);
	dn_plugin_close(&plugin);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "darknet: standard output: %s\n", errno ? strerror(errno) : "write error");
		if (!status)
			status = 1;
	}
	return status;
}
