/*
 * Stands before the C library's open() in another process, so that /dev/nvidiactl is there on any computer.
 *
 * The file that FAKE_NVIDIACTL names holds the error that opening it gives; 0 opens it, -1 never returns.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef int open_function(const char *path, int flags, ...);

static int told(const char *path)
{
    int error = 0;
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file)
        return 0;
    if (fscanf(file, "%d", &error) != 1)
        error = 0;
    fclose(file);
    return error;
}

static int open_or_refuse(const char *name, const char *path, int flags, mode_t mode)
{
    open_function *real = (open_function *)dlsym(RTLD_NEXT, name);
    if (strcmp(path, "/dev/nvidiactl"))
        return real(path, flags, mode);
    int error = told(getenv("FAKE_NVIDIACTL"));
    while (error < 0)
        pause();
    errno = error;
    return error ? -1 : real("/dev/null", flags);
}

#define OPEN(name)                                            \
    int name(const char *path, int flags, ...)                \
    {                                                         \
        va_list more;                                         \
        va_start(more, flags);                                \
        mode_t mode = flags & O_CREAT ? va_arg(more, int) : 0; \
        va_end(more);                                         \
        return open_or_refuse(#name, path, flags, mode);      \
    }

OPEN(open)
OPEN(open64)
