/* Fails or kills the n-th system call that changes files below a folder, whoever makes it: Python, Rust, C++.
 * Loaded with LD_PRELOAD; fault_arm() is called in the process that is to meet the fault. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { NEVER, FULL, STAYS_FULL, BROKEN, KILLED };

static char root[PATH_MAX];
static long at, calls;
static int kind = NEVER;

void fault_arm(const char *folder, long number, int what) {
    snprintf(root, sizeof root, "%s/", folder);
    at = number, calls = 0, kind = what;
}

long fault_calls(void) { return calls; }

static int below(const char *path) { return root[0] && strncmp(path, root, strlen(root)) == 0; }

static int place(int fd, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, out, PATH_MAX - 1);
    if (size < 0) return 0;
    out[size] = 0;
    return 1;
}

static int named(int folder, const char *path) {
    char full[2 * PATH_MAX], start[PATH_MAX];
    if (path[0] == '/') return below(path);
    if (folder == AT_FDCWD ? !getcwd(start, sizeof start) : !place(folder, start)) return 0;
    snprintf(full, sizeof full, "%s/%s", start, path);
    return below(full);
}

static int opened(int fd) {
    char path[PATH_MAX];
    return root[0] && place(fd, path) && below(path);
}

/* The error that this call meets, or 0. */
static int fault(int counts, int needs_room) {
    if (!counts || kind == NEVER) return 0;
    int before = errno;
    long number = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    errno = before;
    if (number == at && kind == KILLED) kill(getpid(), SIGKILL);
    if (kind == STAYS_FULL) return number >= at && needs_room ? ENOSPC : 0;
    return number != at ? 0 : kind == BROKEN ? EIO : ENOSPC;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MEET(counts, room)                     \
    do {                                       \
        int met = fault(counts, room);         \
        if (met) return errno = met, -1;       \
    } while (0)

#define OPEN(name)                                                                 \
    int name(const char *path, int flags, ...) {                                   \
        va_list more;                                                              \
        va_start(more, flags);                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;    \
        va_end(more);                                                              \
        MEET((flags & (O_ACCMODE | O_CREAT)) && named(AT_FDCWD, path), flags & O_CREAT); \
        return REAL(name)(path, flags, mode);                                      \
    }
#define OPENAT(name)                                                               \
    int name(int folder, const char *path, int flags, ...) {                       \
        va_list more;                                                              \
        va_start(more, flags);                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;    \
        va_end(more);                                                              \
        MEET((flags & (O_ACCMODE | O_CREAT)) && named(folder, path), flags & O_CREAT); \
        return REAL(name)(folder, path, flags, mode);                              \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* Whether a write makes a file longer; one into room that was set aside needs none. */
static int grows(int fd, size_t size) {
    struct stat state;
    off_t where = fcntl(fd, F_GETFL) & O_APPEND ? -1 : lseek(fd, 0, SEEK_CUR);
    return where < 0 || fstat(fd, &state) || where + (off_t)size > state.st_size;
}

ssize_t write(int fd, const void *data, size_t size) {
    MEET(opened(fd), grows(fd, size));
    return REAL(write)(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t where) {
    MEET(opened(fd), 1);
    return REAL(pwrite)(fd, data, size, where);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t where) {
    MEET(opened(fd), 1);
    return REAL(pwrite64)(fd, data, size, where);
}

int fsync(int fd) {
    MEET(opened(fd), 0);
    return REAL(fsync)(fd);
}

int rename(const char *from, const char *to) {
    MEET(named(AT_FDCWD, to), 0);
    return REAL(rename)(from, to);
}

int renameat(int here, const char *from, int there, const char *to) {
    MEET(named(there, to), 0);
    return REAL(renameat)(here, from, there, to);
}

int unlink(const char *path) {
    MEET(named(AT_FDCWD, path), 0);
    return REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    MEET(named(folder, path), 0);
    return REAL(unlinkat)(folder, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    MEET(named(AT_FDCWD, path), 1);
    return REAL(mkdir)(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    MEET(named(folder, path), 1);
    return REAL(mkdirat)(folder, path, mode);
}

int symlink(const char *target, const char *path) {
    MEET(named(AT_FDCWD, path), 1);
    return REAL(symlink)(target, path);
}

int link(const char *from, const char *to) {
    MEET(named(AT_FDCWD, to), 1);
    return REAL(link)(from, to);
}

int symlinkat(const char *target, int folder, const char *path) {
    MEET(named(folder, path), 1);
    return REAL(symlinkat)(target, folder, path);
}
