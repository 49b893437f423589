/*
 * Stands before the C library's fsync() and unlinkat() in another process, so that a disk can hang.
 *
 * Both wait as long as the file that FAKE_DISK names is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void)
{
    const char *hangs = getenv("FAKE_DISK");
    while (hangs && !access(hangs, F_OK))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

int fsync(int file)
{
    wait_for_disk();
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}

int unlinkat(int folder, const char *name, int flags)
{
    wait_for_disk();
    return ((int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat"))(folder, name, flags);
}
