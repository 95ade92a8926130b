/* Half writes: preloaded into a victim, armed by it, real bytes into the real file.
 *
 * The nth write below `home` takes only a part of its bytes.  Then, by mode,
 *   's'  it says so, and everything goes on;
 *   'f'  it says so, and every later write finds the disk full;
 *   'x'  as 'f', and the file cannot be cut back either;
 *   'k'  the process is killed.
 * The marker file is made when it happens, as proof.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char home[4096], marker[4096];
static int left, part, mode, full;

void shim_arm(const char *home_path, const char *marker_path, int nth, int how, int bytes)
{
    snprintf(home, sizeof home, "%s/", home_path);
    snprintf(marker, sizeof marker, "%s", marker_path);
    full = 0;
    part = bytes;
    mode = how;
    left = nth;
}

static int inside(int fd)
{
    char link[64], path[4096];
    ssize_t n;

    if (!mode)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    if (n < 0)
        return 0;
    path[n] = 0;
    return strncmp(path, home, strlen(home)) == 0;
}

static size_t share(size_t count)
{
    if (part == -1)
        return count / 2;
    if (part == -2)
        return count - 1;
    return (size_t)part < count ? (size_t)part : count - 1;
}

static ssize_t put(int fd, const void *data, size_t count, off_t offset, int at)
{
    return at ? syscall(SYS_pwrite64, fd, data, count, offset) : syscall(SYS_write, fd, data, count);
}

static ssize_t either(int fd, const void *data, size_t count, off_t offset, int at)
{
    ssize_t done;

    if (!inside(fd))
        return put(fd, data, count, offset, at);
    if (full) {
        errno = ENOSPC;
        return -1;
    }
    if (--left != 0)
        return put(fd, data, count, offset, at);
    done = share(count);
    if (done > 0)
        done = put(fd, data, done, offset, at);
    syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, marker, O_CREAT | O_WRONLY, 0600));
    if (mode == 'k')
        syscall(SYS_kill, getpid(), SIGKILL);
    full = mode != 's';
    if (done == 0) {
        errno = ENOSPC;
        return -1;
    }
    return done;
}

ssize_t write(int fd, const void *data, size_t count)
{
    return either(fd, data, count, 0, 0);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off_t offset)
{
    return either(fd, data, count, offset, 1);
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset)
{
    return either(fd, data, count, offset, 1);
}

static int cut(int fd, off_t size)
{
    if (full && mode == 'x' && inside(fd)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_ftruncate, fd, size);
}

int ftruncate64(int fd, off_t size)
{
    return cut(fd, size);
}

int ftruncate(int fd, off_t size)
{
    return cut(fd, size);
}
